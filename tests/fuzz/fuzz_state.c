/* SPDX-License-Identifier: MIT
 * fuzz_state.c: files of the state folder as somebody else has left them: learned, footprint, disk, reservations, a
 * refusal. Each reader is given the same text as its file: it reads what it would have written, or nothing; and
 * what is kept on top of that stands there afterwards, whatever was there. */
#include "fuzz.h"

#include "base/size.h"
#include "cli/exec_memo.h"
#include "guard/footprint.h"
#include "guard/learned.h"
#include "probe/disk.h"
#include "probe/reservations.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEX  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define BOOT "@BOOT@" /* of the samples: becomes the boot of this machine, which no sample can know */

static char boot[64];
static int dir = -1;

enum { LEARNED, FOOTPRINT, DISK, RESERVATIONS, REFUSED, N_FILES };
static const char *names[N_FILES] = {"learned-" HEX, "footprint-" HEX, "disk-8:1", "reservations"};
static bt_exec_memo empty_memo; /* of one command, whose name it has */

static void start(void) {
    if (setenv("BURTHEN_STATE_DIR", fuzz_folder(), 1) != 0) abort();
    dir = open(fuzz_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (dir < 0 || !file || fscanf(file, "%63s", boot) != 1) abort();
    (void)fclose(file);
    bt_exec_memo_begin(&empty_memo);
    bt_exec_memo_add(&empty_memo, "x", 1);
    static bt_exec_memo named;
    named = empty_memo;
    bt_exec_memo_read(&named, 0);
    names[REFUSED] = named.name;
}

static void stop(void) {
    (void)close(dir);
    fuzz_folder_remove();
}

static void put(const char *name, const char *text, size_t n) {
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n) abort();
    (void)close(fd);
}

static bool learned(void) {
    bt_known before = {0};
    bt_known after = {0};
    bt_learned_read(names[LEARNED], &before);
    FUZZ_CHECK(before.known ? before.value > 0 : before.value == 0);
    bt_learned_keep(names[LEARNED], 4096);
    bt_learned_read(names[LEARNED], &after);
    FUZZ_CHECK(after.known && after.value == bt_max_u64(before.value, 4096));
    return before.known;
}

static bool footprint(void) {
    static const char *const pools[] = {"host"};
    const bt_known peak = {.known = true, .value = 4096};
    bt_footprint before;
    bt_footprint after;
    bt_footprint_read(names[FOOTPRINT], &before);
    FUZZ_CHECK(before.n <= BT_POOL_MAX);
    bt_footprint_keep(names[FOOTPRINT], pools, 1, &peak);
    bt_footprint_read(names[FOOTPRINT], &after);
    bool full = before.n == BT_POOL_MAX && bt_footprint_find(&before, "host") == 0;
    for (uint32_t i = 0; i < before.n; i++)
        FUZZ_CHECK(bt_footprint_find(&after, before.pools[i]) >= before.bytes[i]);
    if (!full) FUZZ_CHECK(bt_footprint_find(&after, "host") == bt_max_u64(bt_footprint_find(&before, "host"), 4096));
    return before.n > 0;
}

static bool disk(void) {
    bt_disk it = {.id = "8:1"};
    bool known = bt_disk_recall(&it);
    FUZZ_CHECK(!known || (it.depth > 0 && it.request_bytes % BT_PAGE_BYTES == 0 && it.bytes_per_s > 0));
    it = (bt_disk){.id = "8:1", .depth = 4, .request_bytes = 1u << 20, .bytes_per_s = 1000};
    bt_disk again = {.id = "8:1"};
    bt_disk_keep(&it);
    FUZZ_CHECK(bt_disk_recall(&again) && again.depth == 4 && again.bytes_per_s == 1000);
    return known;
}

static bool reservations(void) {
    static bt_machine machine;
    machine = (bt_machine){.n_pools = 1};
    bt_reservations_probe(&machine);
    FUZZ_CHECK(machine.reservations_reason[0] == '\0');
    FUZZ_CHECK(machine.n_reservations <= sizeof machine.reservations / sizeof *machine.reservations);
    for (uint32_t i = 0; i < machine.n_reservations; i++)
        FUZZ_CHECK(machine.reservations[i].pid > 0 &&
                   memchr(machine.reservations[i].command, '\0', sizeof machine.reservations[i].command));
    bool promised = false;
    FUZZ_CHECK(bt_reservation_make("run", 4096, machine.promised_bytes, &promised, NULL) == BT_OK && promised);
    bt_reservation_drop();
    return machine.n_reservations > 0;
}

static bool refused(void) {
    const int64_t now_ms = INT64_C(1800000000000);
    bt_exec_memo memo = empty_memo;
    bt_exec_memo again = empty_memo;
    bt_exec_memo_read(&memo, now_ms);
    bool held = memo.memo.held;
    FUZZ_CHECK(!held || (memo.memo.at_ms >= 0 && memo.memo.at_ms <= now_ms));
    (void)bt_memo_hit(&memo.memo, (bt_known){.known = true, .value = UINT64_MAX}, now_ms, NULL);
    bt_exec_memo_keep(&memo, 4096, now_ms);
    bt_exec_memo_read(&again, now_ms + 1);
    FUZZ_CHECK(again.memo.held && again.memo.free_bytes == 4096 && again.memo.at_ms == now_ms);
    return held;
}

static bool one(char *text, size_t n) {
    static char own[FUZZ_BYTES_MAX + sizeof boot];
    char *mark = strstr(text, BOOT);
    if (mark && n < FUZZ_BYTES_MAX) {
        n = (size_t)snprintf(own, sizeof own, "%.*s%s%s", (int)(mark - text), text, boot, mark + sizeof BOOT - 1);
        text = own;
    }
    for (int i = 0; i < N_FILES; i++)
        put(names[i], text, n);
    bool taken = learned();
    taken = footprint() || taken;
    taken = disk() || taken;
    taken = refused() || taken;
    return reservations() || taken;
}

static const char *word(size_t i) {
    static const char *const words[] = {"burthen-learned 1\n",
                                        "burthen-footprint 1\n",
                                        "burthen-disk 1\n",
                                        "burthen-refused 1\n",
                                        "burthen-reservations 1 " BOOT "\n",
                                        "host ",
                                        "CUDA0 ",
                                        "1 ",
                                        "\n",
                                        "18446744073709551615",
                                        "0",
                                        "run\n",
                                        "65536 "};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {
    .name = "state", .one = one, .start = start, .stop = stop, .word = word, .n_rounds = 1000};
