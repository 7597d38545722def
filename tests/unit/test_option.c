/* SPDX-License-Identifier: MIT
 * test_option.c: the table parser as src/base/option.h and docs/interfaces.md promise it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/heap.h"
#include "base/option.h"
#include "heap_check.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN = 1, RUN = 2 };

typedef struct wishes {
    bool force, force_set;
    const char *prompt;
    uint64_t budget_bytes;
    bool budget_set;
    uint32_t n_ctx;
    int32_t n_predict;
    double temperature;
    int policy;
    uint32_t n_devices;
    uint32_t n_parallel;
    double any_real;
    int32_t any_whole;
} wishes;

static bt_status take_device(const char *value, void *target, bt_error *err) {
    wishes *w = target;
    if (strcmp(value, "none") == 0) {
        return bt_fail(err, BT_E_ARG, "device", BT_MEASURE_NONE, 0, 0, "no such device: %s", value);
    }
    w->n_devices++;
    return BT_OK;
}

#define AT(member) .offset = offsetof(wishes, member), .set_offset = SIZE_MAX
static const bt_option table[] = {
    {.name = "ram-budget",
     .kind = BT_OPTION_SIZE,
     .offset = offsetof(wishes, budget_bytes),
     .set_offset = offsetof(wishes, budget_set),
     .arg = "SIZE",
     .commands = PLAN | RUN,
     .help = "Most memory the model may take, everything counted; refused when it cannot be held, with the smallest "
             "budget that can",
     .shown_default = "what the machine has free"},
    {.name = "force",
     .alias = "ram-budget-force",
     .kind = BT_OPTION_FLAG,
     .offset = offsetof(wishes, force),
     .set_offset = offsetof(wishes, force_set),
     .commands = PLAN | RUN,
     .help = "Run a refused plan"},
    {.name = "ctx-size",
     .shorts = "c",
     .kind = BT_OPTION_U32,
     AT(n_ctx),
     .min = 1,
     .max = 1000000,
     .arg = "N",
     .commands = PLAN | RUN,
     .help = "Context in tokens",
     .shown_default = "4096"},
    {.name = "parallel",
     .shorts = "np",
     .kind = BT_OPTION_U32,
     AT(n_parallel),
     .arg = "N",
     .commands = PLAN | RUN,
     .help = "Sequences"},
    {.name = "predict",
     .alias = "n-predict",
     .shorts = "n np1",
     .kind = BT_OPTION_I32,
     AT(n_predict),
     .min = -1,
     .max = INT32_MAX,
     .arg = "N",
     .commands = RUN,
     .help = "Tokens to generate"},
    {.name = "temp",
     .kind = BT_OPTION_REAL,
     AT(temperature),
     .min = 0,
     .max = 100,
     .arg = "T",
     .commands = RUN,
     .help = "Temperature",
     .shown_default = "0.8"},
    {.name = "policy",
     .kind = BT_OPTION_CHOICE,
     AT(policy),
     .choices = "ctx|speed|c",
     .commands = PLAN | RUN,
     .help = "What the rest of the budget buys"},
    {.name = "prompt",
     .shorts = "p",
     .kind = BT_OPTION_TEXT,
     AT(prompt),
     .arg = "TEXT",
     .commands = RUN,
     .no_env = true,
     .help = "What to continue"},
    {.name = "device",
     .kind = BT_OPTION_CUSTOM,
     .set_offset = SIZE_MAX,
     .parse = take_device,
     .arg = "NAME[=SIZE]",
     .commands = PLAN | RUN,
     .help = "Devices that may be used; repeatable"},
    {.name = "any-real", .kind = BT_OPTION_REAL, AT(any_real), .commands = PLAN, .hidden = true},
    {.name = "any-whole", .kind = BT_OPTION_I32, AT(any_whole), .commands = PLAN, .hidden = true},
};
enum { N_TABLE = sizeof table / sizeof *table };

static const char *environment[8][2];

static const char *get_environment(const char *name) {
    for (size_t i = 0; i < 8 && environment[i][0]; i++) {
        if (strcmp(environment[i][0], name) == 0) return environment[i][1];
    }
    return NULL;
}

static int clear(void **state) {
    (void)state;
    memset(environment, 0, sizeof environment);
    return 0;
}

#define MAX_ARGS 3
static const char *args[MAX_ARGS];
static bt_option_result result;
static bt_error error;

static bt_status parse(uint32_t command, wishes *w, const char *const *argv) {
    char *copies[16]; /* argv is char *const *, as main's is */
    int argc = 0;
    for (; argv[argc]; argc++) {
        copies[argc] = (char *)(uintptr_t)argv[argc];
    }
    memset(w, 0, sizeof *w);
    memset(&error, 0, sizeof error);
    result = (bt_option_result){.args = args, .max_args = MAX_ARGS, .rest = 77};
    return bt_options_parse(table, N_TABLE, command, argc, copies, get_environment, NULL, w, &result, &error);
}
#define PARSE(command, w, ...) parse(command, w, (const char *const[]){__VA_ARGS__, NULL})

#define REFUSED(command, message, ...)                                                                                 \
    do {                                                                                                               \
        wishes refused_;                                                                                               \
        assert_int_equal(PARSE(command, &refused_, __VA_ARGS__), BT_E_ARG);                                            \
        assert_string_equal(error.code, "option");                                                                     \
        assert_string_equal(error.text, message);                                                                      \
    } while (0)

static void test_spellings(void **state) {
    (void)state;
    wishes w;
    assert_int_equal(PARSE(RUN, &w, "--ctx-size", "100", "--ram-budget=1.5G", "-np", "4", "-n=7", "--temp", "0.7"),
                     BT_OK);
    assert_int_equal(w.n_ctx, 100);
    assert_int_equal(w.budget_bytes, 1610612736);
    assert_true(w.budget_set);
    assert_int_equal(w.n_parallel, 4);
    assert_int_equal(w.n_predict, 7);
    assert_true(w.temperature > 0.69999999 && w.temperature < 0.70000001);
    assert_false(w.force || w.force_set);
    assert_int_equal(result.n_args, 0);
    assert_int_equal(result.rest, 0);

    assert_int_equal(PARSE(RUN, &w, "--ctx_size=5", "--ram_budget_force", "--n-predict", "3", "-np1", "9"), BT_OK);
    assert_int_equal(w.n_ctx, 5);
    assert_true(w.force && w.force_set);
    assert_int_equal(w.n_predict, 9); /* the last one counts */

    assert_int_equal(PARSE(RUN, &w, "-c", "8", "--policy", "speed", "--device", "A", "--device=B=2G"), BT_OK);
    assert_int_equal(w.n_ctx, 8);
    assert_int_equal(w.policy, 1);
    assert_int_equal(w.n_devices, 2);
    assert_int_equal(PARSE(RUN, &w, "--policy=c"), BT_OK);
    assert_int_equal(w.policy, 2);
}

static void test_values_as_they_are(void **state) {
    (void)state;
    wishes w;
    assert_int_equal(PARSE(RUN, &w, "-n", "-1", "-p", "--not-an-option", "--temp=0"), BT_OK);
    assert_int_equal(w.n_predict, -1);
    assert_string_equal(w.prompt, "--not-an-option");
    assert_int_equal(PARSE(RUN, &w, "--prompt=a=b"), BT_OK);
    assert_string_equal(w.prompt, "a=b");
    assert_int_equal(PARSE(RUN, &w, "-p", "--"), BT_OK);
    assert_string_equal(w.prompt, "--");
    assert_int_equal(result.rest, 0);
    assert_int_equal(PARSE(PLAN, &w, "--any-whole", "-5", "--any-real", "-2.5e-1"), BT_OK);
    assert_int_equal(w.any_whole, -5);
    assert_true(w.any_real <= -0.25 && w.any_real >= -0.25);
    assert_int_equal(PARSE(PLAN, &w, "--any-whole=-2147483648", "--any-real=1e308"), BT_OK);
    assert_int_equal(w.any_whole, INT32_MIN);
    assert_int_equal(PARSE(PLAN, &w, "--any-whole=2147483647"), BT_OK);
    assert_int_equal(w.any_whole, INT32_MAX);
    assert_int_equal(PARSE(PLAN, &w, "-np=4294967295"), BT_OK);
    assert_true(w.n_parallel == UINT32_MAX);
}

static void test_arguments(void **state) {
    (void)state;
    wishes w;
    assert_int_equal(PARSE(RUN, &w, "a.gguf", "--force", "-", "-c", "1", "b"), BT_OK);
    assert_int_equal(result.n_args, 3);
    assert_string_equal(result.args[0], "a.gguf");
    assert_string_equal(result.args[1], "-");
    assert_string_equal(result.args[2], "b");
    REFUSED(RUN, "one argument too many: \"d\"", "a", "b", "c", "d");

    assert_int_equal(PARSE(RUN, &w, "a", "--", "--force", "-x"), BT_OK);
    assert_int_equal(result.n_args, 1);
    assert_int_equal(result.rest, 2);
    assert_false(w.force);
    assert_int_equal(PARSE(RUN, &w, "--"), BT_OK);
    assert_int_equal(result.rest, 1);

    char *one[] = {(char *)(uintptr_t)"x"};
    char *rest[] = {(char *)(uintptr_t)"--", (char *)(uintptr_t)"x"};
    assert_int_equal(bt_options_parse(table, N_TABLE, RUN, 1, one, get_environment, NULL, &w, NULL, &error), BT_E_ARG);
    assert_int_equal(bt_options_parse(table, N_TABLE, RUN, 2, rest, get_environment, NULL, &w, NULL, &error), BT_E_ARG);
    assert_string_equal(error.text, "one argument too many: \"x\"");
    assert_int_equal(bt_options_parse(table, N_TABLE, RUN, 1, rest, get_environment, NULL, &w, NULL, &error), BT_OK);
    assert_int_equal(bt_options_parse(table, N_TABLE, RUN, 0, NULL, get_environment, NULL, &w, NULL, &error), BT_OK);
    assert_int_equal(bt_options_parse(NULL, 0, RUN, 0, NULL, get_environment, NULL, &w, NULL, &error), BT_OK);
}

static void test_unknown(void **state) {
    (void)state;
    REFUSED(RUN, "unknown option --ctx-sise; the nearest is --ctx-size", "--ctx-sise", "5");
    REFUSED(RUN, "unknown option --ctx_szie; the nearest is --ctx-size", "--ctx_szie=5");
    REFUSED(RUN, "unknown option -ctx-size; the nearest is --ctx-size", "-ctx-size", "5");
    REFUSED(RUN, "unknown option --ctx; the nearest is --ctx-size", "--ctx", "5"); /* it goes on */
    REFUSED(RUN, "unknown option -nq; the nearest is -np", "-nq", "5");
    REFUSED(RUN, "unknown option --np; the nearest is -np", "--np", "5");
    REFUSED(RUN, "unknown option --zzzzzz", "--zzzzzz");
    REFUSED(RUN, "unknown option -5", "-5");
    REFUSED(RUN, "unknown option --", "--=x");
    REFUSED(RUN, "unknown option -c5; the nearest is -c", "-c5");                    /* values are not glued on */
    REFUSED(RUN, "unknown option --no-force; the nearest is --force", "--no-force"); /* not invented */
    REFUSED(PLAN, "--temp is not an option of this command", "--temp", "1");
    REFUSED(PLAN, "-p is not an option of this command", "-p=1");
    REFUSED(RUN, "--any-real is not an option of this command", "--any-real=1");
    REFUSED(PLAN, "unknown option --any-rael", "--any-rael=1"); /* a hidden one is not proposed */
}

static void test_bad_values(void **state) {
    (void)state;
    REFUSED(RUN, "--ctx-size needs a value", "--ctx-size");
    REFUSED(RUN, "-c needs a value", "--force", "-c");
    REFUSED(RUN, "--ctx-size is given an empty value", "--ctx-size=");
    REFUSED(RUN, "-p is given an empty value", "-p", "");
    REFUSED(RUN, "--force takes no value: --force=1", "--force=1");
    REFUSED(RUN, "--ctx_size wants a whole number, not \"5k\"", "--ctx_size=5k");
    REFUSED(RUN, "-c wants a whole number, not \"-5\"", "-c", "-5");
    REFUSED(RUN, "-c wants a whole number, not \"+5\"", "-c", "+5");
    REFUSED(RUN, "-c wants a whole number, not \" 5\"", "-c", " 5");
    REFUSED(RUN, "-c wants a whole number, not \"0x5\"", "-c", "0x5");
    REFUSED(RUN, "-c wants a whole number from 1 to 1000000, not \"0\"", "-c", "0");
    REFUSED(RUN, "-c wants a whole number from 1 to 1000000, not \"18446744073709551617\"", "-c",
            "18446744073709551617");
    REFUSED(RUN, "-np wants a whole number from 0 to 4294967295, not \"4294967296\"", "-np", "4294967296");
    REFUSED(RUN, "-n wants a whole number from -1 to 2147483647, not \"-2\"", "-n", "-2");
    REFUSED(RUN, "-n wants a whole number, not \"--1\"", "-n", "--1");
    REFUSED(RUN, "-n wants a whole number, not \"-\"", "-n", "-");
    REFUSED(PLAN, "--any-whole wants a whole number from -2147483648 to 2147483647, not \"2147483648\"",
            "--any-whole=2147483648");
    REFUSED(RUN, "--temp wants a number from 0 to 100, not \"-0.1\"", "--temp", "-0.1");
    REFUSED(RUN, "--temp wants a number from 0 to 100, not \"100.0000001\"", "--temp", "100.0000001");
    REFUSED(PLAN, "--any-real wants a number that is not so large, not \"1e309\"", "--any-real=1e309");
    static const char *const no_reals[] = {"0,5", "nan", "inf", "0x1p3", ".5", "5.",  "1e",
                                           "1e+", " 1",  "1 ",  "--1",   "+1", "1.5f"};
    for (size_t i = 0; i < sizeof no_reals / sizeof *no_reals; i++) {
        wishes w;
        assert_int_equal(PARSE(PLAN, &w, "--any-real", no_reals[i]), BT_E_ARG);
        assert_string_equal(error.code, "option");
        assert_non_null(strstr(error.text, "--any-real wants a number, not"));
    }
    REFUSED(RUN, "--policy wants one of ctx|speed|c, not \"Speed\"", "--policy", "Speed");
    REFUSED(RUN, "--policy wants one of ctx|speed|c, not \"ctx|speed\"", "--policy", "ctx|speed");
    REFUSED(RUN, "--policy wants one of ctx|speed|c, not \"spee\"", "--policy", "spee");
    REFUSED(RUN, "--ram-budget: not a size such as 512M, 1.5G, 256MiB, 300MB or 268435456: \"5,5G\"", "--ram-budget",
            "5,5G");
    wishes w;
    assert_int_equal(PARSE(RUN, &w, "--device", "none"), BT_E_ARG);
    assert_string_equal(error.code, "device"); /* a custom parser speaks for itself */
    assert_string_equal(error.text, "no such device: none");
}

static void test_environment(void **state) {
    (void)state;
    wishes w;
    environment[0][0] = "BURTHEN_CTX_SIZE";
    environment[0][1] = "100";
    environment[1][0] = "BURTHEN_RAM_BUDGET";
    environment[1][1] = "2G";
    environment[2][0] = "BURTHEN_FORCE";
    environment[2][1] = "yes";
    environment[3][0] = "BURTHEN_PROMPT"; /* has no twin */
    environment[3][1] = "hello";
    assert_int_equal(PARSE(RUN, &w, "x"), BT_OK);
    assert_int_equal(w.n_ctx, 100);
    assert_int_equal(w.budget_bytes, UINT64_C(2) << 30);
    assert_true(w.budget_set && w.force && w.force_set);
    assert_null(w.prompt);

    environment[2][1] = "0";
    assert_int_equal(PARSE(RUN, &w, "-c", "5"), BT_OK);
    assert_int_equal(w.n_ctx, 5); /* the flag is first */
    assert_false(w.force);
    assert_true(w.force_set);

    environment[0][1] = "many";
    assert_int_equal(PARSE(RUN, &w, "-c", "5"), BT_OK); /* a bad one that is overridden does no harm */
    REFUSED(RUN, "BURTHEN_CTX_SIZE wants a whole number, not \"many\"", "x");
    environment[0][1] = "";
    REFUSED(RUN, "BURTHEN_CTX_SIZE is given an empty value", "x");
    environment[0][0] = "BURTHEN_TEMP"; /* of another command: not looked at */
    environment[0][1] = "hot";
    assert_int_equal(PARSE(PLAN, &w, "x"), BT_OK);
    environment[2][1] = "maybe";
    REFUSED(PLAN, "BURTHEN_FORCE wants 1, on, true, yes, 0, off, false or no, not \"maybe\"", "x");
    environment[1][1] = "2X";
    REFUSED(PLAN, "BURTHEN_RAM_BUDGET: not a size such as 512M, 1.5G, 256MiB, 300MB or 268435456: \"2X\"", "x");
    environment[0][1] = "1";
    environment[1][0] = "BURTHEN_DEVICE"; /* a custom parser does not know where its value stood */
    environment[1][1] = "none";
    environment[2][1] = "yes";
    REFUSED(RUN, "BURTHEN_DEVICE: no such device: none", "x");

    /* the real environment, where no reader is given */
    char *none[] = {NULL};
    w = (wishes){0};
    assert_int_equal(setenv("BURTHEN_POLICY", "speed", 1), 0);
    assert_int_equal(bt_options_parse(table, N_TABLE, PLAN, 0, none, NULL, NULL, &w, NULL, &error), BT_OK);
    assert_int_equal(w.policy, 1);
    assert_int_equal(unsetenv("BURTHEN_POLICY"), 0);
}

static void test_locale(void **state) {
    (void)state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8")) skip();
    wishes w;
    assert_int_equal(PARSE(RUN, &w, "--temp", "0.5"), BT_OK);
    assert_true(w.temperature >= 0.5 && w.temperature <= 0.5);
    assert_int_equal(PARSE(RUN, &w, "--temp", "0,5"), BT_E_ARG);
    setlocale(LC_ALL, "C");
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const names[] = {"plan", "run", "perplexity", "inspect"};
    assert_string_equal(bt_nearest("paln", names, 4), "plan");
    assert_string_equal(bt_nearest("rnu", names, 4), "run");
    assert_string_equal(bt_nearest("preplexiti", names, 4), "perplexity");
    assert_string_equal(bt_nearest("perp", names, 4), "perplexity");
    assert_string_equal(bt_nearest("plan", names, 4), "plan");
    assert_null(bt_nearest("serve", names, 4));
    assert_null(bt_nearest("", names, 4));
    assert_null(bt_nearest("x", names, 4));
    assert_null(bt_nearest("plan", names, 0));
    char longer[200];
    memset(longer, 'p', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(bt_nearest(longer, names, 4));
}

static void test_help(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 1 << 16);
    bt_options_help(table, N_TABLE, PLAN, 100, &text);
    assert_false(text.failed);
    assert_string_equal(
        bt_text_str(&text),
        "  --ram-budget SIZE            Most memory the model may take, everything counted; refused when it\n"
        "                               cannot be held, with the smallest budget that can\n"
        "                               [default: what the machine has free]\n"
        "  --force, --ram-budget-force  Run a refused plan\n"
        "  -c, --ctx-size N             Context in tokens [default: 4096]\n"
        "  -np, --parallel N            Sequences\n"
        "  --policy ctx|speed|c         What the rest of the budget buys\n"
        "  --device NAME[=SIZE]         Devices that may be used; repeatable\n");
    bt_text_done(&text);
}

/* No line passes the terminal, unless a word alone does. */
static void test_help_of_narrow_terminals(void **state) {
    (void)state;
    for (size_t width = 1; width <= 120; width++) {
        size_t limit = width < 40 ? 40 : width > 100 ? 100 : width;
        size_t longest = 0;
        bt_text text;
        bt_text_init(&text, 1 << 16);
        bt_options_help(table, N_TABLE, PLAN, width, &text);
        for (const char *at = bt_text_str(&text); *at; at += strcspn(at, "\n") + 1) {
            size_t n = strcspn(at, "\n");
            if (n > longest) longest = n;
        }
        bt_text_done(&text);
        assert_in_range(longest, limit / 2, limit);
    }
}

static void test_help_of_wide_entries(void **state) {
    (void)state;
    static const bt_option wide[] = {
        {.name = "a-name-that-is-longer-than-the-column",
         .kind = BT_OPTION_TEXT,
         .set_offset = SIZE_MAX,
         .commands = PLAN,
         .help = "fills a line of sixty-four columns exactly, up to this very end. and goes on",
         .shown_default = "none"},
        {.name = "b",
         .kind = BT_OPTION_FLAG,
         .set_offset = SIZE_MAX,
         .commands = PLAN,
         .help = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
        {.name = "\xC3\xA9t\xC3\xA9",
         .kind = BT_OPTION_TEXT,
         .arg = "N",
         .set_offset = SIZE_MAX,
         .commands = PLAN,
         .help = "two columns less than bytes"},
    };
    bt_text text;
    bt_text_init(&text, 1 << 16);
    bt_options_help(wide, 3, PLAN, 1000, &text);
    assert_string_equal(
        bt_text_str(&text),
        "  --a-name-that-is-longer-than-the-column VALUE\n"
        "           fills a line of sixty-four columns exactly, up to this very end. and goes on\n"
        "           [default: none]\n"
        "  --b      aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
        "  --\xC3\xA9t\xC3\xA9 N  two columns less than bytes\n");
    bt_text_done(&text);
    bt_options_help(wide, 0, PLAN, 0, &text);
    assert_string_equal(bt_text_str(&text), "");
    bt_text_done(&text);
}

static void test_faults(void **state) {
    (void)state;
#ifdef BT_FAULT
    wishes w;
    bt_fault_arm(0, false);
    bt_status status = PARSE(RUN, &w, "--force");
    assert_true(bt_fault_disarm());
    assert_int_equal(status, BT_E_NOMEM);
    assert_int_equal(error.status, BT_E_NOMEM);
    assert_false(w.force);
#else
    skip();
#endif
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, clear, heap_is_empty)
    const struct CMUnitTest tests[] = {
        CASE(test_spellings),
        CASE(test_values_as_they_are),
        CASE(test_arguments),
        CASE(test_unknown),
        CASE(test_bad_values),
        CASE(test_environment),
        CASE(test_locale),
        CASE(test_nearest),
        CASE(test_help),
        CASE(test_help_of_wide_entries),
        CASE(test_help_of_narrow_terminals),
        CASE(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
