/* SPDX-License-Identifier: MIT
 * test_plugin.c: libggml-burthen.so as ggml loads it (src/plugin): a device where there is a plan for this very
 * process, else none, and one sentence in the program's log that says why.
 *
 * What the library finds it keeps for the life of a process: each case is a child. */
#include "burthen.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "guest_kit.h"

#include "ggml-backend-impl.h"
#include "ggml.h"

#include <dlfcn.h>
#include <sys/wait.h>

#define SKIPPED    77
#define SAID_BYTES 4096

typedef struct fixture {
    char path[4096];
    guest g;
} fixture;

/* ---- in the child ---- */

typedef ggml_backend_reg_t (*init_fn)(void);

static char said[SAID_BYTES];
static uint32_t n_said;

static void on_log(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (!strstr(text, "burthen: ") || level < GGML_LOG_LEVEL_WARN) return; /* that there is a plan is information */
    n_said++;
    (void)snprintf(said, sizeof said, "%s", text);
}

/* alone: in a namespace of its own, where it brings its ggml along, as it does in a program that holds ggml in itself.
 */
static const char *ask_twice(bool alone) {
    const char *path = getenv("BT_PLUGIN");
    void *library = alone ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return dlerror();
    void *symbol = dlsym(library, "ggml_backend_init"), *log_symbol = dlsym(library, "ggml_log_set");
    if (!symbol || !log_symbol) return "it has no ggml_backend_init, or no ggml";
    init_fn init = NULL;
    void (*log_set)(ggml_log_callback, void *) = NULL;
    memcpy(&init, &symbol, sizeof init);
    memcpy(&log_set, &log_symbol, sizeof log_set);
    log_set(on_log, NULL);
    ggml_backend_reg_t reg = init(), again = init();
    if (!reg || reg != again) return "not the same registry again";
    if (strcmp(ggml_backend_reg_name(reg), "Burthen") != 0) return "another name";
    size_t n = ggml_backend_reg_dev_count(reg);
    (void)snprintf(said + strlen(said), sizeof said - strlen(said), "%s%zu devices", n_said > 0 ? "" : "nothing; ", n);
    if (n == 0 && n_said != 1) return "not one sentence";
    if (n == 0) return NULL;
    ggml_backend_dev_t device = ggml_backend_reg_dev_get(reg, 0);
    if (n != 1 || n_said != 0 || strcmp(ggml_backend_dev_name(device), "Burthen0") != 0) return "not Burthen0 alone";
    return NULL;
}

static int answer(int fd, bool alone) {
    const char *wrong = ask_twice(alone);
    const char *words = wrong ? wrong : said;
    return write(fd, words, strlen(words)) >= 0 && !wrong ? 0 : 1;
}

/* What the library came to in a process of its own; it ends with "0 devices" or "1 devices". */
static void ask_child(const char *plan, const char *pid, bool alone, char *ret_said) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (plan ? setenv("BURTHEN_PLAN", plan, 1) != 0 : unsetenv("BURTHEN_PLAN") != 0) _exit(2);
        char own[32];
        (void)snprintf(own, sizeof own, "%ld", (long)getpid());
        if (pid && setenv("BURTHEN_PLAN_PID", strcmp(pid, "own") == 0 ? own : pid, 1) != 0) _exit(2);
        if (alone && dup2(ends[1], STDOUT_FILENO) >= 0) /* a new namespace has the environment of the start */
            (void)execl("/proc/self/exe", "test_plugin", "--alone", (char *)NULL);
        _exit(alone ? 2 : answer(ends[1], false));
    }
    assert_int_equal(close(ends[1]), 0);
    ssize_t n = 0, got = 0;
    while (n < SAID_BYTES - 1 && (got = read(ends[0], ret_said + n, (size_t)(SAID_BYTES - 1 - n))) > 0)
        n += got;
    ret_said[n] = '\0';
    assert_int_equal(close(ends[0]), 0);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("status %d: %s", status, ret_said);
}

static void check(const char *plan, const char *pid, const char *words, const char *n_devices) {
    char found[SAID_BYTES];
    ask_child(plan, pid, false, found);
    if (!strstr(found, words) || !strstr(found, n_devices)) fail_msg("\"%s\", without \"%s\"", found, words);
}

static void check_refused(const char *plan, const char *pid, const char *words) {
    check(plan, pid, words, "0 devices");
}

/* ---- plans ---- */

static char *read_plan(const fixture *f) {
    char *text = calloc(1, 1u << 20);
    assert_non_null(text);
    FILE *file = fopen(f->g.plan_path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, (1u << 20) - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_true(n > 0 && n < (1u << 20) - 1);
    return text;
}

/* The plan with the first of some words changed into others of the same length, or cut there. */
static void check_changed(const fixture *f, const char *from, const char *to, const char *words) {
    char *text = read_plan(f);
    char *at = strstr(text, from);
    if (!at) fail_msg("no %s in the plan", from);
    if (to) {
        assert_int_equal(strlen(from), strlen(to));
        memcpy(at, to, strlen(to));
    } else {
        *at = '\0';
    }
    char path[600];
    (void)snprintf(path, sizeof path, "%s.changed", f->g.plan_path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    check_refused(path, NULL, words);
    (void)unlink(path);
    free(text);
}

static void test_without_a_plan(void **state) {
    (void)state;
    check_refused(NULL, NULL, "BURTHEN_PLAN is not set: nothing is held");
    check_refused("", NULL, "BURTHEN_PLAN is not set: nothing is held");
}

static void test_with_a_plan(void **state) {
    const fixture *f = *state;
    check(f->g.plan_path, NULL, "nothing", "1 devices");
    check(f->g.plan_path, "own", "nothing", "1 devices");
}

static void test_of_another_process(void **state) {
    const fixture *f = *state;
    char parent[32];
    (void)snprintf(parent, sizeof parent, "%ld", (long)getpid());
    check_refused(f->g.plan_path, parent, "the budget belongs to process ");
    check_refused(f->g.plan_path, "", "the budget belongs to process ");
    check_refused(f->g.plan_path, "own or not", "the budget belongs to process ");
}

static void test_ggml_in_the_program(void **state) {
    const fixture *f = *state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)f;
    skip(); /* a namespace has no room for a second sanitizer */
#else
    char found[SAID_BYTES];
    ask_child(f->g.plan_path, NULL, true, found);
    if (!strstr(found, "this program holds ggml in itself") || !strstr(found, "0 devices")) fail_msg("\"%s\"", found);
#endif
}

static void test_no_such_plan(void **state) {
    const fixture *f = *state;
    char path[600];
    (void)snprintf(path, sizeof path, "%s.not", f->g.plan_path);
    check_refused(path, NULL, "cannot open the plan");
    check_refused(BT_TEST_OUT, NULL, "cannot read the plan");
    check_changed(f, "\"fingerprint\"", NULL, "JSON");
}

static void test_of_another_build(void **state) {
    const fixture *f = *state;
    check_changed(f, "\"build\": \"" BT_VERSION, "\"build\": \"9.9.9", "the plan is of burthen 9.9.9");
}

static void test_of_another_model(void **state) {
    const fixture *f = *state;
    char from[40], to[40];
    (void)snprintf(from, sizeof from, "\"header_sha256\": \"%.8s", f->g.facts->header_sha256);
    (void)snprintf(to, sizeof to, "\"header_sha256\": \"%s", "00c0ffee");
    check_changed(f, from, to, "the plan is for another model: header 00c0ffee");
}

static void test_not_for_a_guest(void **state) {
    const fixture *f = *state;
    check_changed(f, "\"guest\": true", "\"guesu\": true", "member");
    fixture other = {0};
    bt_error err = {0};
    assert_int_equal(bt_facts_open(f->path, &other.g.facts, &err), BT_OK);
    guest_plan_make(&other.g, GUEST_PINS_HALF);
    other.g.plan.wishes.guest = false;
    guest_plan_write(&other.g, "plugin-not-for-a-guest");
    check_refused(other.g.plan_path, NULL, "the plan was not made for a program of llama.cpp's own");
    guest_plan_free(&other.g);
}

static void test_refused(void **state) {
    const fixture *f = *state;
    fixture other = {0};
    bt_error err = {0};
    assert_int_equal(bt_facts_open(f->path, &other.g.facts, &err), BT_OK);
    guest_plan_make(&other.g, GUEST_PINS_HALF);
    other.g.plan.verdict = BT_REFUSED;
    (void)snprintf(other.g.plan.refusal.code, sizeof other.g.plan.refusal.code, "ram_budget");
    (void)snprintf(other.g.plan.refusal.message, sizeof other.g.plan.refusal.message, "too little");
    guest_plan_write(&other.g, "plugin-refused");
    check_refused(other.g.plan_path, NULL, "the plan was refused");
    other.g.plan.forced = true;
    guest_plan_write(&other.g, "plugin-refused");
    check(other.g.plan_path, NULL, "nothing", "1 devices");
    guest_plan_free(&other.g);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--alone") == 0) return answer(STDOUT_FILENO, true);
    static fixture f;
    if (!guest_model_path(f.path) || !getenv("BT_PLUGIN")) {
        (void)puts("skipped: smollm2-135m-instruct-q4_1.gguf is not there, or BT_PLUGIN is not set");
        return SKIPPED;
    }
    bt_error err = {0};
    char version[64];
    (void)snprintf(version, sizeof version, "ggml %s", ggml_version());
    bt_report_init(version); /* the library calls its build so */
    (void)unsetenv("BURTHEN_PLAN_PID");
    if (bt_facts_open(f.path, &f.g.facts, &err) != BT_OK) return 1;
    guest_plan_make(&f.g, GUEST_PINS_HALF);
    guest_plan_write(&f.g, "plugin");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_without_a_plan, &f),     cmocka_unit_test_prestate(test_with_a_plan, &f),
        cmocka_unit_test_prestate(test_of_another_process, &f), cmocka_unit_test_prestate(test_no_such_plan, &f),
        cmocka_unit_test_prestate(test_of_another_build, &f),   cmocka_unit_test_prestate(test_of_another_model, &f),
        cmocka_unit_test_prestate(test_not_for_a_guest, &f),    cmocka_unit_test_prestate(test_refused, &f),
        cmocka_unit_test_prestate(test_ggml_in_the_program, &f)};
    int failed = cmocka_run_group_tests_name("plugin", tests, NULL, NULL);
    guest_plan_free(&f.g);
    return failed;
}
