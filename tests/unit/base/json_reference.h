/* jansson's opinion of a document, kept apart because its names and ours are the same. */
#ifndef JSON_REFERENCE_H
#define JSON_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

bool reference_accepts(const char *text, size_t n);
bool reference_same(const char *a, size_t na, const char *b,
                    size_t nb); /* two accepted documents */

#endif
