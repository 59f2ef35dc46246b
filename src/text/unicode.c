/* Character facts for tokenizers: classes, repair of ill-formed UTF-8, the byte alphabet.
 * Knows no tokenizer. Pure; any thread. */
#include "unicode.h"

#include <utf8proc.h>

#include "../base/utf8.h"

bool unicode_is_space(uint32_t c)
{
    /* PropList.txt, White_Space; unchanged since Unicode 6.3. */
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool unicode_is_numeric(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool unicode_is_digit(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

bool unicode_is_punct(uint32_t c)
{
    if (c < 0x80)
        return c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') &&
               !(c >= 'a' && c <= 'z');
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool unicode_is_mark(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool unicode_is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    case UTF8PROC_CATEGORY_SO: /* Other_Alphabetic among the symbols: circled and squared letters */
        return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
               (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
    default:
        return c == 0x200c || c == 0x200d; /* Join_Control */
    }
}

size_t unicode_bad_length(const char *s, size_t n)
{
    for (size_t k = n < 3 ? n : 3; k > 1; k--)
        if (utf8_is_cut(s, k))
            return k;
    return 1;
}

int unicode_repair(const char *text, size_t n, struct text_buf *out, struct leat_error *e)
{
    size_t good = 0; /* bytes since the last ill-formed place */
    size_t i = 0;
    bool bad = false;
    while (i < n) {
        uint32_t c;
        int k = (unsigned char)text[i] < 0x80 ? 1 : utf8_next(text + i, n - i, &c);
        if (k > 0) {
            i += (size_t)k;
            continue;
        }
        int rc = text_buf_add(out, text + good, i - good, e);
        if (rc == 0)
            rc = text_buf_add(out, "\xef\xbf\xbd", 3, e);
        if (rc < 0)
            return rc;
        bad = true;
        i += unicode_bad_length(text + i, n - i);
        good = i;
    }
    if (!bad)
        return 0;
    int rc = text_buf_add(out, text + good, n - good, e);
    return rc < 0 ? rc : 1;
}

/* GPT-2's encoder.py, bytes_to_unicode: printable bytes stand for themselves, the other 68 follow
 * from U+0100 in rising order. */
static bool byte_is_own_letter(uint32_t b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

uint32_t byte_alphabet_char(uint8_t byte)
{
    if (byte_is_own_letter(byte))
        return byte;
    if (byte <= 32)
        return 0x100u + byte;
    return byte <= 160 ? 0x100u + 33 + (byte - 127u) : 0x100u + 67; /* 127..160, 173 */
}

int byte_alphabet_byte(uint32_t c)
{
    if (c < 0x100)
        return byte_is_own_letter(c) ? (int)c : -1;
    c -= 0x100;
    if (c <= 32)
        return (int)c;
    if (c <= 66)
        return (int)(c - 33 + 127);
    return c == 67 ? 173 : -1;
}

int byte_alphabet_add(struct text_buf *out, const char *bytes, size_t n, struct leat_error *e)
{
    int rc = text_buf_reserve(out, n * 2, e);
    if (rc < 0)
        return rc;
    char *p = out->p + out->n;
    for (size_t i = 0; i < n; i++)
        p += utf8_write(p, byte_alphabet_char((uint8_t)bytes[i]));
    out->n = (size_t)(p - out->p);
    return 0;
}
