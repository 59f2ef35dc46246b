/* Facts about characters that tokenizers ask for, and the byte alphabet of byte-level BPE.
 * Categories come from utf8proc. Pure; any thread. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

#include "text_buf.h"

bool unicode_is_space(uint32_t c);   /* White_Space */
bool unicode_is_numeric(uint32_t c); /* Nd, Nl, No */
bool unicode_is_digit(uint32_t c);   /* Nd */
bool unicode_is_punct(uint32_t c);   /* ASCII punctuation and symbols, and every P category */
bool unicode_is_mark(uint32_t c);    /* Mn, Mc, Me */
/* Alphabetic, marks, decimal digits, connectors, joiners: \w of the regular expressions in use. */
bool unicode_is_word(uint32_t c);

/* The length of the maximal subpart (Unicode 15, section 3.9) of an ill-formed sequence at s, 1..3.
 */
size_t unicode_bad_length(const char *s, size_t n);

/* If text is well-formed UTF-8, leaves out empty and returns 0; else fills out with text in which
 * each maximal subpart is U+FFFD and returns 1. Negative on failure. */
int unicode_repair(const char *text, size_t n, struct text_buf *out, struct leat_error *e);

/* The GPT-2 byte alphabet: every byte has one printable character. */
uint32_t byte_alphabet_char(uint8_t byte);
int byte_alphabet_byte(uint32_t c); /* 0..255, -1 = not a letter of it */
/* Appends the letters of n bytes. */
int byte_alphabet_add(struct text_buf *out, const char *bytes, size_t n, struct leat_error *e);

#endif
