/* Stop strings: the cut does not depend on how the text arrives, and nothing is shown that is
 * taken back later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../../src/session/rng.h"
#include "../../../src/session/stopping.h"

/* Where the whole text must be cut: the end that comes first, and of the stops that end there the
 * longest. */
static size_t plain_cut(const struct stop_set *s, const char *text, size_t len)
{
    for (size_t end = 1; end <= len; end++) {
        size_t longest = 0;
        for (int32_t i = 0; i < s->n; i++) {
            size_t n = strlen(s->strings[i]);
            if (n > longest && n <= end && !memcmp(text + end - n, s->strings[i], n))
                longest = n;
        }
        if (longest) {
            size_t cut = end - longest;
            while (cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80)
                cut--;
            return cut;
        }
    }
    return STOP_NONE;
}

/* Feeds text in chunks as a job does; returns the final length and checks what was shown on the
 * way. */
static size_t feed(const struct stop_set *s, const char *text, size_t len, struct rng *g,
                   size_t most)
{
    size_t have = 0, shown = 0;
    int32_t which;
    while (have < len) {
        size_t step = 1 + (size_t)(rng_unit(g) * (double)most);
        while (have + step < len && ((unsigned char)text[have + step] & 0xc0) == 0x80)
            step++; /* whole characters arrive */
        size_t next = have + step < len ? have + step : len;
        size_t cut = stop_find(s, text, have, next, &which);
        have = next;
        if (cut != STOP_NONE) {
            assert_true(cut >= shown);
            return cut;
        }
        size_t safe = stop_safe(s, text, have);
        assert_true(safe <= have &&
                    (safe == len || ((unsigned char)text[safe] & 0xc0) != 0x80 || safe == have));
        shown = safe > shown ? safe : shown;
    }
    return len;
}

static void test_every_chunking_cuts_alike(void **state)
{
    (void)state;
    struct rng g;
    int cuts = 0, whole = 0;
    rng_seed(&g, 1);
    for (int round = 0; round < 4000; round++) {
        char text[64], stops[3][8];
        const char *list[3] = {stops[0], stops[1], stops[2]};
        size_t len = (size_t)(rng_unit(&g) * 40);
        for (size_t i = 0; i < len; i++)
            text[i] = (char)('a' + (int)(rng_unit(&g) * 3));
        for (int k = 0; k < 3; k++) {
            size_t n = 1 + (size_t)(rng_unit(&g) * 6);
            for (size_t i = 0; i < n; i++)
                stops[k][i] = (char)('a' + (int)(rng_unit(&g) * 3));
            stops[k][n] = 0;
        }
        struct stop_set s = {list, 1 + round % 3};
        size_t want = plain_cut(&s, text, len);
        cuts += want != STOP_NONE;
        whole += want == STOP_NONE;
        for (size_t most = 1; most < 12; most += 3)
            assert_true(feed(&s, text, len, &g, most) == (want == STOP_NONE ? len : want));
    }
    assert_true(cuts > 1000 && whole > 100);
}

static void test_every_byte_of_a_character(void **state)
{
    (void)state;
    /* U+96EA, U+1F388, U+00F1, then ASCII; stops of whole characters and, oddly, of a character's
     * tail */
    static const char text[] = "x\xe9\x9b\xaa\xf0\x9f\x8e\x88\xc3\xb1 end";
    static const char *const whole[] = {"\xf0\x9f\x8e\x88\xc3\xb1"}, *const tail[] = {"\x8e\x88"};
    const size_t len = sizeof text - 1;
    int32_t which = -1;
    struct stop_set s = {whole, 1}, t = {tail, 1};
    struct rng g;
    rng_seed(&g, 2);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(feed(&s, text, len, &g, 4), 4);
        assert_int_equal(feed(&t, text, len, &g, 4), 4); /* never half a character */
    }
    assert_int_equal(stop_find(&s, text, 0, len, &which), 4);
    assert_int_equal(which, 0);
    assert_int_equal(stop_safe(&s, text, 8), 4); /* the balloon might begin the stop string */
    assert_int_equal(stop_safe(&s, text, 4), 4);
}

static void test_nothing_is_held_without_need(void **state)
{
    (void)state;
    static const char *const list[] = {"</s>", "", "\n\n"};
    struct stop_set s = {list, 3}, none = {NULL, 0};
    int32_t which;
    assert_int_equal(stop_safe(&s, "hello", 5), 5);
    assert_int_equal(stop_safe(&s, "hello<", 6), 5);
    assert_int_equal(stop_safe(&s, "hello</s", 8), 5);
    assert_int_equal(stop_safe(&s, "hello\n", 6), 5);
    assert_int_equal(stop_safe(&s, "hello</x", 8), 8);
    assert_int_equal(stop_safe(&none, "hello", 5), 5);
    assert_true(stop_find(&none, "hello", 0, 5, &which) == STOP_NONE);
    assert_true(stop_find(&s, "hello", 0, 5, &which) == STOP_NONE);
    /* one that begins in what was already looked through */
    assert_int_equal(stop_find(&s, "hi</s>", 5, 6, &which), 2);
    assert_int_equal(which, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_chunking_cuts_alike),
        cmocka_unit_test(test_every_byte_of_a_character),
        cmocka_unit_test(test_nothing_is_held_without_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
