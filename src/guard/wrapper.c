/* SPDX-License-Identifier: MIT
 * wrapper.c: from the left end of a command to the name of the program that will read the rest.
 *
 *   env -i LLAMA_ARG_CTX_SIZE=8192   nice -n 10   docker run -m 8g -e X image   llama-server   -m model.gguf -c 4096
 *   `--------wrapper-------------'   `wrapper-'   `---------wrapper---------'   `program--'   `--its arguments--'
 *
 * The letters of the wrappers' options are those of llama.cpp's (-m, -c, -p), so only what follows the program may be
 * read as its options. A wrapper is a row: its options with a value, those without, and how many words stand before the
 * command. A word that a row does not have ends the search: the command is then started as it is, and never guessed at.
 * Shells, interpreters and sudo are no rows for that reason. What wrappers do to the environment is kept in order,
 * since each option of llama.cpp has a twin there. Nothing is allocated; the walk takes each element once. */
#include "guard/wrapper.h"

#include <stdio.h>
#include <string.h>

typedef struct wrapper {
    const char *names;
    const char *valued, *bare; /* options with a value and without */
    const char *sets;          /* with a value NAME=text, or NAME: a variable */
    const char *unsets;        /* with a value NAME */
    const char *clears;        /* without: no variable is left */
    const char *keeps;         /* without: the command is started from here, not by a service manager */
    const char *hides;         /* with a value: variables from a file */
    const char *entry;         /* with a value: the program */
    uint32_t n_words;          /* before the command; NUMBER: one, if it is a number */
    bool numbers;              /* "-5" is an option */
    bool assigns;              /* words NAME=text before the command */
    bool forks;                /* stays, and starts the command as a process of its own */
} wrapper;

#define NUMBER 100u

/* coreutils 9, util-linux 2.41, numactl 2.0, systemd 257: their manuals */
static const wrapper wrappers[] = {
    {.names = "nohup"},
    {.names = "env",
     .valued = "-C --chdir -a --argv0",
     .bare = "-v --debug --block-signal --default-signal --ignore-signal",
     .unsets = "-u --unset",
     .clears = "- -i --ignore-environment",
     .assigns = true},
    {.names = "nice", .valued = "-n --adjustment", .numbers = true},
    {.names = "ionice", .valued = "-c --class -n --classdata", .bare = "-t --ignore"},
    {.names = "chrt",
     .valued = "-T --sched-runtime -P --sched-period -D --sched-deadline",
     .bare = "-a --all-tasks -b --batch -d --deadline -e --ext -f --fifo -i --idle -o --other -r --rr "
             "-R --reset-on-fork -v --verbose",
     .n_words = NUMBER},
    {.names = "taskset", .bare = "-a --all-tasks -c --cpu-list", .n_words = 1},
    {.names = "numactl",
     .valued = "-i --interleave -w --weighted-interleave -p --preferred -P --preferred-many -m --membind "
               "-N --cpunodebind -C --physcpubind",
     .bare = "-a --all -l --localalloc -b --balancing"},
    {.names = "stdbuf", .valued = "-i --input -o --output -e --error"},
    {.names = "timeout",
     .valued = "-k --kill-after -s --signal",
     .bare = "-f --foreground -p --preserve-status -v --verbose",
     .n_words = 1,
     .forks = true},
    {.names = "setsid", .bare = "-c --ctty -f --fork -w --wait", .forks = true}, /* where it leads a process group */
    {.names = "time",
     .valued = "-f --format -o --output",
     .bare = "-a --append -p --portability -v --verbose",
     .forks = true},
    {.names = "systemd-run",
     .valued = "-p --property -u --unit --slice --description --uid --gid --nice -H --host -M --machine "
               "--working-directory --service-type --expand-environment --background --job-mode",
     .bare = "--user --system --wait -P --pipe -t --pty -q --quiet -G --collect -d --same-dir --no-block "
             "-r --remain-after-exit --send-sighup --no-ask-password --slice-inherit --ignore-failure",
     .sets = "-E --setenv",
     .keeps = "--scope"},
};

/* docker 28 and podman 5: before the word run, and after it */
static const wrapper engine_options = {
    .names = "docker podman nerdctl",
    .valued = "-c --context --config -H --host -l --log-level --tlscacert --tlscert --tlskey --root --runroot "
              "--connection --url --namespace --cgroup-manager --storage-driver --storage-opt",
    .bare = "-D --debug --tls --tlsverify -r --remote"};
static const wrapper run_options = {
    .valued = "--add-host --annotation -a --attach --blkio-weight --blkio-weight-device --cap-add --cap-drop "
              "--cgroup-conf --cgroup-parent --cgroupns --cgroups --cidfile --cpu-count --cpu-percent --cpu-period "
              "--cpu-quota --cpu-rt-period --cpu-rt-runtime -c --cpu-shares --cpus --cpuset-cpus --cpuset-mems "
              "--detach-keys --device --device-cgroup-rule --device-read-bps --device-read-iops --device-write-bps "
              "--device-write-iops --dns --dns-opt --dns-option --dns-search --domainname --expose --gidmap --gpus "
              "--group-add --group-entry --health-cmd --health-interval --health-retries --health-start-interval "
              "--health-start-period --health-timeout -h --hostname --hostuser --image-volume --init-path --ip --ip6 "
              "--ipc --isolation --kernel-memory -l --label --label-file --link --link-local-ip --log-driver "
              "--log-opt --mac-address -m --memory --memory-reservation --memory-swap --memory-swappiness --mount "
              "--name --net --network --network-alias --oom-score-adj --passwd-entry --personality --pid --pidfile "
              "--pids-limit --platform --pod -p --publish --pull --requires --restart --runtime --sdnotify --secret "
              "--security-opt --shm-size --stop-signal --stop-timeout --storage-opt --subgidname --subuidname "
              "--sysctl --systemd --timeout --tmpfs --tz --uidmap --ulimit --umask -u --user --userns --uts -v "
              "--volume --volume-driver --volumes-from -w --workdir",
    .bare = "-d --detach --disable-content-trust --http-proxy --init -i --interactive --no-healthcheck --no-hosts "
            "--no-hostname --oom-kill-disable --passwd --privileged -P --publish-all -q --quiet --read-only "
            "--read-only-tmpfs --replace --rm --rmi --rootfs --sig-proxy --tls-verify -t --tty --unsetenv-all",
    .sets = "-e --env",
    .unsets = "--unsetenv",
    .hides = "--env-file --env-merge",
    .entry = "--entrypoint",
};

typedef struct walk {
    char *const *argv;
    uint32_t at;
    bt_command *out;
    const char *entry;
    bool kept;
} walk;

static bool stop(walk *w, const char *what, const char *word) {
    if (!w->out->reason[0]) (void)snprintf(w->out->reason, sizeof w->out->reason, "%s: %.80s", what, word);
    return false;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool among(const char *words, const char *text, size_t n) {
    for (const char *p = words; n > 0 && p && *p;) {
        size_t length = strcspn(p, " ");
        if (length == n && memcmp(p, text, n) == 0) return true;
        p += length;
        p += strspn(p, " ");
    }
    return false;
}

/* ---- the environment -------------------------------------------------------------------------------------------- */

static bool change(walk *w, bt_env_action action, const char *name, size_t n, const char *value) {
    bt_command *out = w->out;
    if (out->n_changes == BT_ENV_CHANGE_MAX) return stop(w, "too many variables are set", name ? name : "");
    out->changes[out->n_changes++] = (bt_env_change){action, name, (uint32_t)n, value};
    return true;
}

/* "NAME=text" sets, "NAME" hands through. */
static bool assign(walk *w, const char *text) {
    const char *equals = strchr(text, '=');
    if (!equals) return change(w, BT_ENV_INHERIT, text, strlen(text), NULL);
    return change(w, BT_ENV_SET, text, (size_t)(equals - text), equals + 1);
}

const char *bt_command_env(const bt_command *command, const char *name, bt_env_get get, void *context) {
    bool through = false; /* the next CLEAR does not count */
    for (uint32_t i = command->n_changes; i-- > 0;) {
        const bt_env_change *c = &command->changes[i];
        if (c->action == BT_ENV_CLEAR) {
            if (!through) return NULL;
            through = false;
            continue;
        }
        if (c->n_name != strlen(name) || memcmp(c->name, name, c->n_name) != 0) continue;
        if (c->action == BT_ENV_SET) return c->value;
        if (c->action == BT_ENV_UNSET) return NULL;
        through = true;
    }
    return get ? get(context, name) : NULL;
}

/* ---- options of a wrapper --------------------------------------------------------------------------------------- */

static bool has_value(const wrapper *row, const char *name, size_t n) {
    return among(row->valued, name, n) || among(row->sets, name, n) || among(row->unsets, name, n) ||
           among(row->hides, name, n) || among(row->entry, name, n);
}

static bool use_value(walk *w, const wrapper *row, const char *name, size_t n, const char *value) {
    if (!value) return stop(w, "an option lacks its value", name);
    if (among(row->sets, name, n)) return assign(w, value);
    if (among(row->unsets, name, n)) return change(w, BT_ENV_UNSET, value, strlen(value), NULL);
    if (among(row->entry, name, n)) w->entry = value;
    if (among(row->hides, name, n)) w->out->env_unknown = true;
    return true;
}

static bool use_bare(walk *w, const wrapper *row, const char *name, size_t n) {
    if (among(row->clears, name, n)) return change(w, BT_ENV_CLEAR, NULL, 0, NULL);
    if (among(row->keeps, name, n)) {
        w->kept = true;
        return true;
    }
    return among(row->bare, name, n) || stop(w, "an option of a wrapper that is not known", name);
}

static const char *next_word(walk *w) {
    return w->argv[w->at] ? w->argv[w->at++] : NULL;
}

static bool long_option(walk *w, const wrapper *row, const char *text) {
    size_t n = strcspn(text, "=");
    if (!has_value(row, text, n)) return use_bare(w, row, text, n);
    return use_value(w, row, text, n, text[n] ? text + n + 1 : next_word(w));
}

/* "-n 5", "-n5", "-n=5", "-it", "-itp 80:80" */
static bool short_options(walk *w, const wrapper *row, const char *text) {
    if (!text[1]) return use_bare(w, row, text, 1);
    if (row->numbers && text[1 + strspn(text + 1, "0123456789")] == '\0') return true;
    for (const char *p = text + 1; *p; p++) {
        const char name[3] = {'-', *p, '\0'};
        if (has_value(row, name, 2)) {
            const char *rest = p[1] == '=' ? p + 2 : p + 1;
            return use_value(w, row, name, 2, *rest ? rest : next_word(w));
        }
        if (!use_bare(w, row, name, 2)) return false;
    }
    return true;
}

static bool options(walk *w, const wrapper *row) {
    const char *text;
    while ((text = w->argv[w->at]) && text[0] == '-') {
        if (!text[1] && !among(row->clears, text, 1)) break;
        w->at++;
        if (strcmp(text, "--") == 0) break;
        if (!(text[1] == '-' ? long_option(w, row, text) : short_options(w, row, text))) return false;
    }
    return true;
}

static bool is_number(const char *text) {
    return text && text[0] && text[strspn(text, "0123456789")] == '\0';
}

static bool pass_wrapper(walk *w, const wrapper *row) {
    w->kept = false;
    if (row->forks) w->out->forks = row->names;
    uint32_t n_before = w->out->n_changes;
    bool service = row->keeps != NULL;
    if (service && !change(w, BT_ENV_CLEAR, NULL, 0, NULL)) return false;
    if (!options(w, row)) return false;
    if (service && w->kept)
        w->out->changes[n_before] = (bt_env_change){.action = BT_ENV_INHERIT, .name = ""}; /* nothing was dropped */
    else if (service)
        w->out->env_unknown = true;
    uint32_t n_words = row->n_words == NUMBER ? is_number(w->argv[w->at]) : row->n_words;
    while (n_words-- > 0) {
        if (!next_word(w)) return stop(w, "a wrapper ends before its command", row->names);
    }
    while (row->assigns && w->argv[w->at] && strchr(w->argv[w->at], '=')) {
        if (!assign(w, w->argv[w->at++])) return false;
    }
    return true;
}

/* ---- programs --------------------------------------------------------------------------------------------------- */

static bt_program program_named(const char *path) {
    const char *name = base_name(path);
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".exe") == 0) n -= 4;
    for (uint32_t i = BT_PROGRAM_NONE + 1; i < BT_PROGRAM_COUNT; i++) {
        const char *known = bt_program_name((bt_program)i);
        if (strlen(known) == n && memcmp(known, name, n) == 0) return (bt_program)i;
    }
    return strncmp(name, "sam3", 4) == 0 ? BT_PROGRAM_SAM : BT_PROGRAM_NONE;
}

typedef struct word_program {
    const char *words;
    bt_program program;
} word_program;

static bt_program program_of_word(const word_program *rows, size_t n_rows, const char *word) {
    for (size_t i = 0; word && i < n_rows; i++) {
        if (among(rows[i].words, word, strlen(word))) return rows[i].program;
    }
    return BT_PROGRAM_NONE;
}

static bool found(walk *w, bt_program program, uint32_t at, uint32_t first) {
    w->out->program = program;
    w->out->program_at = at;
    w->out->first = first;
    return true;
}

/* "llama serve": app/llama.cpp of llama.cpp */
static bool front_end(walk *w) {
    static const word_program commands[] = {
        {"serve server", BT_PROGRAM_SERVER},
        {"cli client", BT_PROGRAM_CLI},
        {"completion complete", BT_PROGRAM_COMPLETION},
        {"bench", BT_PROGRAM_BENCH},
        {"perplexity", BT_PROGRAM_PERPLEXITY},
        {"fit-params", BT_PROGRAM_FIT_PARAMS},
    };
    const char *word = w->argv[w->at + 1];
    bt_program program = program_of_word(commands, sizeof commands / sizeof *commands, word);
    if (program == BT_PROGRAM_NONE) return stop(w, "a command of llama that loads no model", word ? word : "none");
    return found(w, program, w->at, w->at + 2);
}

/* The images of llama.cpp's own .devops folder: tags server..., light..., and full... with a word that chooses. */
static bool entry_point(walk *w, uint32_t image_at) {
    static const word_program modes[] = {
        {"--server -s", BT_PROGRAM_SERVER},         {"--run -r", BT_PROGRAM_CLI},
        {"--run-legacy -l", BT_PROGRAM_COMPLETION}, {"--bench -b", BT_PROGRAM_BENCH},
        {"--perplexity -p", BT_PROGRAM_PERPLEXITY},
    };
    const char *name = base_name(w->argv[image_at]);
    const char *tag = strchr(name, ':');
    if (!tag || strncmp(name, "llama.cpp:", 10) != 0) return false;
    if (strncmp(tag, ":server", 7) == 0) return found(w, BT_PROGRAM_SERVER, image_at, w->at);
    if (strncmp(tag, ":light", 6) == 0) return found(w, BT_PROGRAM_CLI, image_at, w->at);
    if (strncmp(tag, ":full", 5) != 0) return false;
    bt_program program = program_of_word(modes, sizeof modes / sizeof *modes, w->argv[w->at]);
    return program != BT_PROGRAM_NONE && found(w, program, image_at, w->at + 1);
}

/* docker run: up to the image, and past it where the image says what it starts. */
static bool pass_container(walk *w) {
    if (!options(w, &engine_options)) return false;
    const char *word = next_word(w);
    if (word && strcmp(word, "container") == 0) word = next_word(w);
    if (!word || strcmp(word, "run") != 0) return stop(w, "a container command other than run", word ? word : "none");
    w->entry = NULL;
    w->out->container = w->out->env_unknown = true;
    if (!change(w, BT_ENV_CLEAR, NULL, 0, NULL) || !options(w, &run_options)) return false;
    uint32_t image_at = w->at;
    if (!next_word(w)) return stop(w, "a container without an image", "run");
    if (w->entry && w->entry[0]) {
        bt_program program = program_named(w->entry);
        if (program == BT_PROGRAM_NONE) return stop(w, "not known as a llama.cpp program", w->entry);
        return found(w, program, image_at, w->at);
    }
    if (w->argv[w->at] && program_named(w->argv[w->at]) != BT_PROGRAM_NONE) return true;
    if (!entry_point(w, image_at) && !w->argv[w->at])
        return stop(w, "not known what the image starts", w->argv[image_at]);
    return true;
}

static const wrapper *wrapper_named(const char *name) {
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        if (among(wrappers[i].names, name, strlen(name))) return &wrappers[i];
    }
    return NULL;
}

/* One command of the chain. false: stopped, with a reason. */
static bool step(walk *w) {
    const char *text = w->argv[w->at];
    const char *name = base_name(text);
    bt_program program = program_named(text);
    if (program != BT_PROGRAM_NONE) return found(w, program, w->at, w->at + 1);
    if (strcmp(name, "llama") == 0) return front_end(w);
    bool engine = among(engine_options.names, name, strlen(name));
    const wrapper *row = wrapper_named(name);
    if (!engine && !row) return stop(w, "neither a llama.cpp program nor a wrapper that is known", text);
    w->at++;
    w->out->n_wrappers++;
    return engine ? pass_container(w) : pass_wrapper(w, row);
}

void bt_command_find(char *const *argv, bt_command *ret) {
    memset(ret, 0, sizeof *ret);
    walk w = {.argv = argv, .out = ret};
    while (ret->program == BT_PROGRAM_NONE) {
        if (!argv[w.at]) {
            (void)stop(&w, "no program", w.at > 0 ? argv[w.at - 1] : "an empty command");
            return;
        }
        if (!step(&w)) break;
    }
    if (!ret->reason[0]) return;
    ret->program = BT_PROGRAM_NONE;
    ret->program_at = ret->first = 0;
}
