/* Rotation frequencies and magnitudes against transformers' own (ROPE_INIT_FUNCTIONS), computed
 * once with transformers 5.24.0 and torch 2.15.0 in f32; the tolerance is f32's. */
#include "unit_model.h"

#include <math.h>

#include "../../../src/model/hparams.h"

#define MOST_PAIRS 64

struct golden {
    const char *name;
    struct rope_params p;
    int32_t dims;
    double magnitude;
    double inv_freq[MOST_PAIRS];
};

static const struct golden golden[] = {
    {"llama3",
     {.base = 500000,
      .factor = 32,
      .scaling = ROPE_SCALING_LLAMA3,
      .original_context = 8192,
      .low = 1,
      .high = 4},
     64,
     1,
     {1,
      0.663601279,
      0.440366626,
      0.292227834,
      0.193922758,
      0.128687382,
      0.0853971019,
      0.0566696189,
      0.0376060307,
      0.0249554086,
      0.0165604409,
      0.0109895291,
      0.00729266508,
      0.00483942125,
      0.00321144611,
      0.00129054801,
      0.000429556705,
      9.70828623e-05,
      1.94616387e-05,
      1.29147675e-05,
      8.57025589e-06,
      5.68723226e-06,
      3.77405445e-06,
      2.50446715e-06,
      1.66196742e-06,
      1.10288363e-06,
      7.31874934e-07,
      4.85673127e-07,
      3.22293289e-07,
      2.1387423e-07,
      1.41927202e-07,
      9.41830649e-08}},
    {"yarn",
     {.base = 1e+06,
      .factor = 4,
      .scaling = ROPE_SCALING_YARN,
      .original_context = 32768,
      .ext_factor = 1,
      .attn_factor = 1,
      .beta_fast = 32,
      .beta_slow = 1,
      .truncate = true},
     128,
     1.13862944,
     {1,
      0.805842221,
      0.649381638,
      0.523299158,
      0.421696514,
      0.339820832,
      0.273841977,
      0.220673397,
      0.177827939,
      0.143301263,
      0.115478203,
      0.0930572003,
      0.0749894157,
      0.0604296438,
      0.0486967526,
      0.0392418988,
      0.0316227786,
      0.0254829675,
      0.0205352511,
      0.0165481716,
      0.0133352149,
      0.0107460786,
      0.00865964312,
      0.00697830599,
      0.00537532149,
      0.0041317381,
      0.00316842273,
      0.00242342241,
      0.00184827659,
      0.00140511245,
      0.00106436096,
      0.000802959781,
      0.000602941145,
      0.000450323569,
      0.000334240554,
      0.000246258394,
      0.000179841154,
      0.00012993149,
      9.26230132e-05,
      6.4903943e-05,
      4.44569851e-05,
      3.58253164e-05,
      2.88695483e-05,
      2.32643015e-05,
      1.87473561e-05,
      1.51074091e-05,
      1.21741887e-05,
      9.81047469e-06,
      7.90569356e-06,
      6.37074163e-06,
      5.13381246e-06,
      4.13704265e-06,
      3.33380353e-06,
      2.68651957e-06,
      2.16491094e-06,
      1.74457659e-06,
      1.40585337e-06,
      1.13289593e-06,
      9.1293532e-07,
      7.35681795e-07,
      5.92843435e-07,
      4.7773824e-07,
      3.84981632e-07,
      3.10234441e-07}},
    {"yarn, betas and attention_factor",
     {.base = 10000,
      .factor = 40,
      .scaling = ROPE_SCALING_YARN,
      .original_context = 4096,
      .ext_factor = 1,
      .attn_factor = 1,
      .beta_fast = 16,
      .beta_slow = 2,
      .truncate = true,
      .magnitude = 0.9},
     64,
     0.9,
     {1,
      0.749894202,
      0.562341332,
      0.421696514,
      0.316227764,
      0.237137362,
      0.177827939,
      0.133352146,
      0.100000001,
      0.0749894157,
      0.0562341288,
      0.0421696492,
      0.0316227786,
      0.0211447477,
      0.0139298551,
      0.00900126994,
      0.00566666666,
      0.003437015,
      0.0019681945,
      0.00101909973,
      0.000421637029,
      5.92843462e-05,
      4.44569851e-05,
      3.3338034e-05,
      2.49999994e-05,
      1.87473543e-05,
      1.40585325e-05,
      1.05424124e-05,
      7.90569447e-06,
      5.92843435e-06,
      4.44569832e-06,
      3.33380353e-06}},
    {"yarn, mscale",
     {.base = 10000,
      .factor = 40,
      .scaling = ROPE_SCALING_YARN,
      .original_context = 4096,
      .ext_factor = 1,
      .attn_factor = 1,
      .beta_fast = 32,
      .beta_slow = 1,
      .truncate = true,
      .magnitude = (0.1 * 1 * 3.6888794541139363 + 1) / (0.1 * 0.707 * 3.6888794541139363 + 1)},
     64,
     1.0857264,
     {1,
      0.749894202,
      0.562341332,
      0.421696514,
      0.316227764,
      0.237137362,
      0.177827939,
      0.133352146,
      0.100000001,
      0.0749894157,
      0.0562341288,
      0.0390069261,
      0.0268793609,
      0.0183781441,
      0.012447956,
      0.0083345091,
      0.00550000044,
      0.00356199732,
      0.00224936521,
      0.00137051346,
      0.000790569407,
      0.000414990413,
      0.00017782794,
      3.3338034e-05,
      2.49999994e-05,
      1.87473543e-05,
      1.40585325e-05,
      1.05424124e-05,
      7.90569447e-06,
      5.92843435e-06,
      4.44569832e-06,
      3.33380353e-06}},
    {"yarn, not truncated",
     {.base = 150000,
      .factor = 32,
      .scaling = ROPE_SCALING_YARN,
      .original_context = 4096,
      .ext_factor = 1,
      .attn_factor = 1,
      .beta_fast = 32,
      .beta_slow = 1,
      .truncate = false},
     64,
     1.34657359,
     {1,
      0.689044297,
      0.47478205,
      0.327145875,
      0.225418001,
      0.155322984,
      0.107024424,
      0.0737445652,
      0.0508132726,
      0.0317056961,
      0.0193349998,
      0.0115920492,
      0.00679495931,
      0.00386035908,
      0.00209379266,
      0.00105260219,
      0.000456483918,
      0.000129318694,
      3.83088118e-05,
      2.63964685e-05,
      1.8188337e-05,
      1.25325696e-05,
      8.63549576e-06,
      5.95023948e-06,
      4.09997847e-06,
      2.82506676e-06,
      1.94659629e-06,
      1.34129095e-06,
      9.24208962e-07,
      6.36820914e-07,
      4.38797855e-07,
      3.0235114e-07}},
    {"linear",
     {.base = 1e+06, .factor = 8, .scaling = ROPE_SCALING_LINEAR},
     64,
     1,
     {0.125,          0.0811727047,   0.0527120642,   0.0342302471,   0.0222284924,
      0.0144347753,   0.00937367696,  0.00608709408,  0.00395284733,  0.00256690639,
      0.00166690187,  0.00108245539,  0.000702926656, 0.000456467678, 0.000296421727,
      0.000192490814, 0.000125000006, 8.11727077e-05, 5.2712061e-05,  3.42302446e-05,
      2.22284925e-05, 1.44347741e-05, 9.37367804e-06, 6.08709433e-06, 3.95284678e-06,
      2.56690623e-06, 1.66690177e-06, 1.08245547e-06, 7.02926684e-07, 4.5646766e-07,
      2.96421717e-07, 1.92490816e-07}},
};

static void test_golden(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof golden / sizeof golden[0]; k++) {
        const struct golden *g = &golden[k];
        double inv_freq[MOST_PAIRS];
        struct leat_error e = {0};
        float magnitude;

        if (rope_build(&g->p, g->dims, inv_freq, &magnitude, g->name, &e))
            fail_msg("%s", e.message);
        if (fabs((double)magnitude - g->magnitude) > 1e-6 * g->magnitude)
            fail_msg("%s: magnitude %.9g instead of %.9g", g->name, (double)magnitude,
                     g->magnitude);
        for (int32_t i = 0; i < g->dims / 2; i++)
            if (fabs(inv_freq[i] - g->inv_freq[i]) > 2e-6 * g->inv_freq[i])
                fail_msg("%s: pair %d has %.9g instead of %.9g", g->name, i, inv_freq[i],
                         g->inv_freq[i]);
    }
}

static void refused(struct rope_params p, const char *word)
{
    double inv_freq[8];
    struct leat_error e = {0};
    float magnitude;

    assert_int_equal(rope_build(&p, 16, inv_freq, &magnitude, "x", &e), LEAT_ERR_FORMAT);
    assert_contains(e.message, word);
}

static void test_refusals(void **state)
{
    (void)state;
    refused((struct rope_params){.base = 0}, "base");
    refused((struct rope_params){.base = (double)NAN}, "base");
    refused((struct rope_params){.base = 1e4, .scaling = ROPE_SCALING_LINEAR, .factor = 0},
            "factor");
    refused(
        (struct rope_params){
            .base = 1e4, .scaling = ROPE_SCALING_LLAMA3, .factor = 8, .low = 1, .high = 4},
        "original");
    refused((struct rope_params){.base = 1e4,
                                 .scaling = ROPE_SCALING_LLAMA3,
                                 .factor = 8,
                                 .original_context = 8192,
                                 .low = 4,
                                 .high = 4},
            "low_freq_factor");
    refused(
        (struct rope_params){
            .base = 1e4, .scaling = ROPE_SCALING_YARN, .factor = 8, .original_context = 8192},
        "beta");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
