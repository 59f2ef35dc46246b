/* inspect_open on containers that cannot run: what they hold and what they lack. Models that run
 * are in check_models.py. */
#include "unit_model.h"

#include "../../../src/model/inspect.h"

static struct inspect *open_path(const char *path)
{
    struct leat_error e = {0};
    struct inspect *i;

    if (inspect_open(path, NULL, &i, &e))
        fail_msg("%s", e.message);
    return i;
}

static const char *meta(const struct inspect *i, const char *key)
{
    for (int64_t k = 0; k < i->n_meta; k++)
        if (strcmp(i->meta[k].key, key) == 0)
            return i->meta[k].value;
    fail_msg("no metadata '%s'", key);
    return NULL;
}

static void test_one_tensor(void **state)
{
    struct writer w = {0};
    struct inspect *i;

    (void)state;
    key_text(&w, "general.architecture", "llama", 5);
    key_bits(&w, "i8", 1, (uint64_t)-5, 1);
    key_f32(&w, "f32", 0.1f);
    key_text(&w, "escape", "a\x1b[31m\xff", 7);
    key_array(&w, "list", 5, 6);
    for (uint64_t k = 0; k < 6; k++)
        put_number(&w.keys, &w.n_keys, k * 11, 4);
    add_tensor(&w, "blk.0.attn_q.weight", 1, 2, (uint64_t[]){16, 4}, 128);
    save_gguf(&w, scratch("one.gguf"), 3);
    i = open_path(scratch("one.gguf"));
    assert_string_equal(i->container, "gguf");
    assert_string_equal(i->arch, "llama");
    assert_false(i->runs);
    assert_null(i->model);
    assert_int_equal(i->n_lacks, 2);
    assert_contains(i->lacks[0], "llama.block_count");
    assert_contains(i->lacks[1], "tokenizer");
    assert_int_equal(i->n_tensors, 1);
    assert_int_equal(i->tensors[0].group, GROUP_ATTENTION);
    assert_int_equal(i->groups[GROUP_ATTENTION].bytes, 128);
    assert_int_equal(i->total_bytes, 128);
    assert_int_equal(i->n_values, 64);
    assert_string_equal(meta(i, "i8"), "-5");
    assert_string_equal(meta(i, "f32"), "0.100000001");
    assert_string_equal(meta(i, "escape"), "a\\x1b[31m\\xff");
    assert_string_equal(meta(i, "list"), "[0, 11, 22, 33, ...]");
    inspect_close(i);
}

static void test_unknown_architecture(void **state)
{
    struct writer w = {0};
    struct inspect *i;

    (void)state;
    key_text(&w, "general.architecture", "quokka", 6);
    key_u32(&w, "quokka.expert_count", 8);
    key_u32(&w, "quokka.expert_used_count", 2);
    add_tensor(&w, "token_embd.weight", 0, 2, (uint64_t[]){8, 10}, 320);
    add_tensor(&w, "output.weight", 0, 2, (uint64_t[]){8, 10}, 320);
    add_tensor(&w, "output_norm.weight", 0, 1, (uint64_t[]){8}, 32);
    add_tensor(&w, "blk.0.ffn_gate_exps.weight", 0, 3, (uint64_t[]){8, 4, 8}, 1024);
    add_tensor(&w, "blk.0.ffn_gate_inp.weight", 0, 2, (uint64_t[]){8, 8}, 256);
    add_tensor(&w, "blk.0.ffn_up.3.weight", 0, 2, (uint64_t[]){8, 4}, 128);
    add_tensor(&w, "blk.0.ffn_down_shexp.weight", 16, 2, (uint64_t[]){256, 1}, 66);
    add_tensor(&w, "blk.0.burrow.weight", 0, 1, (uint64_t[]){8}, 32);
    save_gguf(&w, scratch("quokka.gguf"), 3);
    i = open_path(scratch("quokka.gguf"));
    assert_string_equal(i->arch, "quokka");
    assert_contains(i->lacks[0], "'quokka'");
    assert_contains(i->lacks[0], "gemma3"); /* what is supported */
    assert_contains(i->lacks[0], "complete");
    assert_int_equal(i->groups[GROUP_EMBEDDING].bytes, 320);
    assert_int_equal(i->groups[GROUP_EMBEDDING].token_bytes, 32); /* one row: there is a head */
    assert_int_equal(i->groups[GROUP_OUTPUT].token_bytes, 320);
    assert_int_equal(i->groups[GROUP_EXPERTS].tensors, 2);
    assert_int_equal(i->groups[GROUP_EXPERTS].bytes, 1152);
    assert_int_equal(i->groups[GROUP_EXPERTS].token_bytes, 1152 * 2 / 8);
    assert_int_equal(i->groups[GROUP_ROUTER].bytes, 256);
    assert_int_equal(i->groups[GROUP_NORMS].bytes, 32);
    assert_int_equal(i->groups[GROUP_FFN].bytes, 66);
    assert_int_equal(i->groups[GROUP_OTHER].bytes, 32);
    assert_int_equal(i->n_types, 2);
    assert_string_equal(i->types[1].name, "IQ2_XXS");
    assert_false(i->types[1].runs);
    inspect_close(i);
}

static void test_vocabulary_only(void **state)
{
    struct inspect *i;

    (void)state;
    i = open_path(data_file("vocab-gguf/ggml-vocab-llama-spm.gguf"));
    assert_false(i->runs);
    assert_true(i->has_tokenizer);
    assert_int_equal(i->n_lacks, 1);
    assert_contains(i->lacks[0], "no tensors");
    assert_contains(meta(i, "tokenizer.ggml.tokens"), "\"<unk>\", \"<s>\"");
    assert_int_equal(i->total_bytes, 0);
    inspect_close(i);
}

static void test_lone_safetensors(void **state)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},\"model.layers.0.mlp.up_"
                                 "proj.weight\":{\"dtype\":\"BF16\","
                                 "\"shape\":[2,3],\"data_offsets\":[0,12]}}";
    char bytes[8 + sizeof header - 1 + 12] = {0};
    struct inspect *i;

    (void)state;
    bytes[0] = (char)(sizeof header - 1);
    memcpy(bytes + 8, header, sizeof header - 1);
    save_text(scratch("lone.safetensors"), bytes, sizeof bytes);
    i = open_path(scratch("lone.safetensors"));
    assert_string_equal(i->container, "safetensors");
    assert_contains(i->lacks[0], "config.json");
    assert_int_equal(i->n_tensors, 1);
    assert_string_equal(i->tensors[0].type, "BF16");
    assert_int_equal(i->tensors[0].dims[0], 3); /* row length first */
    assert_int_equal(i->tensors[0].dims[1], 2);
    assert_int_equal(i->tensors[0].group, GROUP_FFN);
    assert_string_equal(meta(i, "format"), "pt");
    inspect_close(i);
}

static void test_trailing(void **state)
{
    struct writer w = {0};
    struct inspect *i;
    uint64_t start;

    (void)state;
    key_text(&w, "general.architecture", "llama", 5);
    add_tensor(&w, "a", 0, 1, (uint64_t[]){32}, 128);
    start = save_gguf(&w, scratch("trailing.gguf"), 3);
    assert_int_equal(truncate(scratch("trailing.gguf"), (off_t)(start + 128 + 777)), 0);
    i = open_path(scratch("trailing.gguf"));
    assert_int_equal(i->files[0].trailing_bytes, 777);
    assert_int_equal(i->files[0].bytes, start + 128 + 777);
    inspect_close(i);
}

/* Memory comes from the ledger, goes back to it, and a ceiling that is too low is an error that
 * leaves nothing held. */
static void test_ledger(void **state)
{
    struct writer w = {0};
    struct ledger *l;
    struct leat_error e = {0};
    struct inspect *i;

    (void)state;
    key_text(&w, "general.architecture", "llama", 5);
    for (int k = 0; k < 2000; k++) {
        char name[32];

        snprintf(name, sizeof name, "tensor.%d", k);
        add_tensor(&w, name, 0, 1, (uint64_t[]){8}, 32);
    }
    save_gguf(&w, scratch("ledger.gguf"), 3);
    assert_int_equal(ledger_open(UINT64_MAX, &l, &e), 0);
    assert_int_equal(inspect_open(scratch("ledger.gguf"), l, &i, &e), 0);
    assert_true(ledger_held(l, DOMAIN_HELD, ROW_MODEL) > 2000 * 100);
    inspect_close(i);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 0);
    ledger_close(l);
    for (uint64_t ceiling = 4096; ceiling < 1u << 20; ceiling *= 2) {
        int rc;

        assert_int_equal(ledger_open(ceiling, &l, &e), 0);
        rc = inspect_open(scratch("ledger.gguf"), l, &i, &e);
        assert_true(rc == LEAT_ERR_MEMORY || rc == 0);
        if (ceiling <= 65536)
            assert_int_equal(rc, LEAT_ERR_MEMORY);
        if (rc == 0)
            inspect_close(i);
        assert_int_equal(ledger_total(l, DOMAIN_HELD), 0);
        ledger_close(l);
    }
}

static void test_real_model(void **state)
{
    struct inspect *i;

    (void)state;
    i = open_path(data_file("stories260K-moe/stories260K-moe8x2-varied-f32.gguf"));
    assert_true(i->runs);
    assert_int_equal(i->n_lacks, 0);
    assert_int_equal(i->model->n_expert, 8);
    /* 5 layers of 2 experts of 3 matrices 64 x 172 in F32 */
    assert_int_equal(i->token_cycle_bytes, 5 * 2 * 3 * 64 * 172 * 4);
    assert_int_equal(i->groups[GROUP_EXPERTS].token_bytes, i->token_cycle_bytes);
    assert_int_equal(i->groups[GROUP_EXPERTS].bytes, 4 * i->token_cycle_bytes);
    assert_int_equal(i->n_expert_units, 40);
    /* the table is the head as well */
    assert_int_equal(i->groups[GROUP_EMBEDDING].token_bytes, 512 * 64 * 4 + 64 * 4);
    inspect_close(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tensor),      cmocka_unit_test(test_unknown_architecture),
        cmocka_unit_test(test_vocabulary_only), cmocka_unit_test(test_lone_safetensors),
        cmocka_unit_test(test_trailing),        cmocka_unit_test(test_real_model),
        cmocka_unit_test(test_ledger),
    };

    return cmocka_run_group_tests(tests, NULL, scratch_remove);
}
