/* SPDX-License-Identifier: MIT
 *
 * page_aside.c: pages that take a while to find out, found out in a process of its own: the machine as it is, and a
 * plan of a model under other wishes ("what if").
 *
 * A plan is `burthen plan --json`, run as anybody would run it: what is asked in the query becomes options, each
 * checked to be of the letters that such values have, so that nothing else can be said to it. At most ASIDE_MAX pages
 * at a time: they take memory of their own. */
#include "router/routing.h"

#include "base/error.h"
#include "base/heap.h"
#include "probe/probe.h"
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASIDE_MS  20000u
#define ASIDE_MAX 2u
#define WORDS_MAX 24u

typedef struct asking {
    bt_router *router;
    bt_request *request;
    bt_aside *aside;
    char *words[WORDS_MAX + 1]; /* of a plan; point into text */
    uint32_t n_words;
    char text[8192];
    size_t n_text;
} asking;

static void end_asking(asking *a) {
    a->router->n_asides--;
    bt_heap_free(a);
}

static void on_gone(void *user) {
    asking *a = user;
    bt_aside_cancel(a->aside);
    end_asking(a);
}

static void on_done(void *user, const bt_text *answer, const bt_error *err) {
    asking *a = user;
    bt_request_on_gone(a->request, NULL, NULL);
    if (err)
        bt_reply_error(a->request, strcmp(err->code, "plan") == 0 ? 400 : 503, err->code, NULL, 0, NULL, "%s",
                       err->text);
    else
        bt_reply_json(a->request, 200, bt_text_str(answer));
    end_asking(a);
}

static asking *begin(bt_router *router, bt_request *request) {
    asking *a = router->n_asides < ASIDE_MAX ? bt_heap_alloc(sizeof *a) : NULL;
    if (!a) {
        bt_reply_error(request, 503, "overloaded", NULL, 1, NULL, "others are asking the same: try again in a moment");
        return NULL;
    }
    router->n_asides++;
    a->router = router;
    a->request = request;
    return a;
}

static void go(asking *a, bt_aside_work *work) {
    bt_error why = {0};
    bt_request_on_gone(a->request, on_gone, a);
    if (bt_aside_start(a->router->loop, work, a, ASIDE_MS, on_done, a, &a->aside, &why) == BT_OK) return;
    on_done(a, NULL, &why);
}

/* ---- the machine ---- */

static bt_status find_machine(void *arg, bt_text *answer, bt_error *err) {
    const asking *a = arg;
    bt_machine *machine = bt_heap_alloc(sizeof *machine);
    char *json = NULL;
    if (!machine) return bt_fail_sys(err, ENOMEM, "probe", "cannot look at the machine");
    BT_TRY(bt_machine_probe(a->router->ask->root, machine, err));
    BT_TRY(bt_machine_devices_probe(a->router->ask->root, machine, err));
    BT_TRY(bt_report_machine_json(machine, &json, err));
    bt_text_add(answer, json);
    return BT_OK; /* the copy ends: what it holds ends with it */
}

void bt_page_machine(bt_router *router, bt_request *request) {
    asking *a = begin(router, request);
    if (a) go(a, find_machine);
}

/* ---- a plan ---- */

static bool add_word(asking *a, const char *text) {
    size_t n = strlen(text) + 1;
    if (a->n_words == WORDS_MAX || a->n_text + n > sizeof a->text) return false;
    memcpy(a->text + a->n_text, text, n);
    a->words[a->n_words++] = a->text + a->n_text;
    a->n_text += n;
    return true;
}

/* query member, option */
static const char *const plan_options[][2] = {
    {"ram_budget", "--ram-budget"}, {"n_ctx", "-c"},          {"n_parallel", "-np"},  {"n_ubatch", "-ub"},
    {"cache_type_k", "-ctk"},       {"cache_type_v", "-ctv"}, {"gpu_layers", "-ngl"}, {"n_cpu_moe", "-ncmoe"},
};

#define N_PLAN_OPTIONS (sizeof plan_options / sizeof *plan_options)

/* NULL: every member of the query is understood. Else a plan would be of other wishes than were asked for. */
static const char *unknown_member(const bt_request *request) {
    const char *known[N_PLAN_OPTIONS + 1] = {"model"};
    for (size_t i = 0; i < N_PLAN_OPTIONS; i++)
        known[i + 1] = plan_options[i][0];
    return bt_request_unknown(request, known, N_PLAN_OPTIONS + 1);
}

static bool is_value(const char *text) {
    return *text && strlen(text) < 32 &&
           strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._") == strlen(text);
}

static bool add_wishes(asking *a) {
    for (size_t i = 0; i < N_PLAN_OPTIONS; i++) {
        const char *value = bt_request_query(a->request, plan_options[i][0]);
        if (!value) continue;
        if (!is_value(value) || !add_word(a, plan_options[i][1]) || !add_word(a, value)) return false;
    }
    return true;
}

/* In the copy: run the words, and let their output be the answer. */
static bt_status run_plan(void *arg, bt_text *answer, bt_error *err) {
    asking *a = arg;
    int pipe_fds[2], status = 0;
    char piece[4096];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) return bt_fail_sys(err, errno, "aside", "no pipe");
    pid_t pid = fork();
    if (pid < 0) return bt_fail_sys(err, errno, "aside", "no process");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* with the copy, whose page is over when its client has left */
        (void)dup2(pipe_fds[1], 1);
        (void)dup2(pipe_fds[1], 2);
        (void)execv(a->words[0], a->words);
        _exit(127);
    }
    (void)close(pipe_fds[1]);
    for (ssize_t n; (n = read(pipe_fds[0], piece, sizeof piece)) != 0;) {
        if (n < 0 && errno != EINTR) break;
        if (n > 0) bt_text_add_n(answer, piece, (size_t)n);
    }
    (void)waitpid(pid, &status, 0);
    bool planned =
        WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3); /* refused is a plan too */
    if (planned && bt_text_str(answer)[0] == '{') return BT_OK;
    return bt_fail(err, BT_E_ARG, "plan", BT_MEASURE_NONE, 0, 0, "%.300s", bt_text_str(answer));
}

void bt_page_plan(bt_router *router, bt_request *request) {
    const char *name = bt_request_query(request, "model");
    if (!name || !*name) {
        bt_reply_error(request, 400, "model_missing", "model", 0, NULL, "/api/plan?model=NAME: it names no model");
        return;
    }
    const char *unknown = unknown_member(request);
    if (unknown) {
        bt_reply_error(request, 400, "plan", unknown, 0, NULL,
                       "/api/plan knows no \"%.64s\"; it takes model, ram_budget, n_ctx, n_parallel, n_ubatch, "
                       "cache_type_k, cache_type_v, gpu_layers, n_cpu_moe",
                       unknown);
        return;
    }
    const bt_model *model = bt_models_find(router->models, name);
    if (!model) {
        bt_page_no_model(router, request, "model", name);
        return;
    }
    if (!model->config->model) {
        bt_reply_error(request, 400, "plan", "model", 0, NULL,
                       "%.128s is no model file of its own: its command decides", name);
        return;
    }
    asking *a = begin(router, request);
    if (!a) return;
    bool fits = add_word(a, router->ask->burthen) && add_word(a, "plan") && add_word(a, model->config->model) &&
                add_word(a, "--json") && add_wishes(a);
    if (fits) {
        go(a, run_plan);
        return;
    }
    end_asking(a);
    bt_reply_error(request, 400, "plan", NULL, 0, NULL, "a value of the query is none that an option takes");
}
