/* SPDX-License-Identifier: MIT
 *
 * disk.c: what a file lies on: a disk that rotates or not, a network, or memory.
 *
 *     path -> statfs: a network's file system, or one in memory
 *          -> device number -> /sys/dev/block/MAJ:MIN: its name, and whether it rotates (a partition asks its disk)
 *          -> none (btrfs, overlay: the number is made up) -> the mount's source in mountinfo -> that device's number
 *
 * The kernel's word on that is a default where the driver does not know: virtio disks say yes on any medium. So it
 * is only a suspicion here, and a speed that no such disk has ends it (bt_disk_rotates). The id is of the file system,
 * which keeps it over reboots while device numbers move. What cannot be found out is unknown. Bounds: a mountinfo of
 * BT_PROC_TEXT_MAX bytes. Left out: what lies below device mapper, loop devices and containers' overlays. */
#include "probe/disk.h"

#include "base/heap.h"
#include "base/os.h"
#include "probe/proc.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

/* linux/magic.h, and the file systems' own headers where it does not list them */
typedef struct magic {
    uint64_t value;
    const char *name;
    bt_disk_kind kind;
} magic;

static const magic magics[] = {
    {0x6969, "nfs", BT_DISK_NETWORK},        {0x517B, "smb", BT_DISK_NETWORK},
    {0xFF534D42, "cifs", BT_DISK_NETWORK},   {0xFE534D42, "smb3", BT_DISK_NETWORK},
    {0x01021997, "9p", BT_DISK_NETWORK},     {0x00C36400, "ceph", BT_DISK_NETWORK},
    {0x0BD00BD0, "lustre", BT_DISK_NETWORK}, {0x5346414F, "afs", BT_DISK_NETWORK},
    {0x6B414653, "afs", BT_DISK_NETWORK},    {0x73757245, "coda", BT_DISK_NETWORK},
    {0x01161970, "gfs2", BT_DISK_NETWORK},   {0x01021994, "tmpfs", BT_DISK_MEMORY},
    {0x858458F6, "ramfs", BT_DISK_MEMORY},   {0x65735546, "fuse", BT_DISK_UNKNOWN},
};

/* ---- device ------------------------------------------------------------------------------------------------------ */

/* A file below a block device's folder in /sys. */
static bool read_of(const char *root, uint32_t device_major, uint32_t device_minor, const char *name,
                    bt_proc_text *text) {
    char path[128];
    (void)snprintf(path, sizeof path, "/sys/dev/block/%" PRIu32 ":%" PRIu32 "/%s", device_major, device_minor, name);
    return bt_proc_read(root, path, 0, text) == 0;
}

/* A partition has no queue, but lies in the folder of its disk, which has. */
static bt_disk_kind find_kind(const char *root, uint32_t device_major, uint32_t device_minor, bt_proc_text *text) {
    bt_span word;
    bool found = read_of(root, device_major, device_minor, "queue/rotational", text) ||
                 read_of(root, device_major, device_minor, "../queue/rotational", text);
    if (!found || !bt_span_only_word(text->data, &word)) return BT_DISK_UNKNOWN;
    if (bt_span_is(word, "1")) return BT_DISK_ROTATING;
    return bt_span_is(word, "0") ? BT_DISK_SOLID : BT_DISK_UNKNOWN;
}

bool bt_disk_of_device(const char *root, uint32_t device_major, uint32_t device_minor, bt_disk *ret) {
    bt_proc_text *text = device_major > 0 ? bt_heap_alloc(sizeof *text) : NULL;
    bt_span name;
    bool found = text && read_of(root, device_major, device_minor, "uevent", text) &&
                 bt_span_find_line(text->data, "DEVNAME=", &name);
    if (found) {
        (void)snprintf(ret->name, sizeof ret->name, "%.*s", (int)name.n_bytes, name.at);
        ret->kind = find_kind(root, device_major, device_minor, text);
    }
    bt_heap_free(text);
    return found;
}

static bool look_at_device(const char *root, dev_t device, bt_disk *ret) {
    return bt_disk_of_device(root, major(device), minor(device), ret);
}

/* ---- the mount's source ------------------------------------------------------------------------------------------ */

/* "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": the word after the file system's name. */
static bool source_of(bt_span line, char *ret_path, size_t capacity) {
    bt_span word;
    while (bt_span_word(&line, &word) && !bt_span_is(word, "-"))
        continue;
    if (!bt_span_word(&line, &word) || !bt_span_word(&line, &word) || !bt_span_starts(word, "/dev/")) return false;
    int n = snprintf(ret_path, capacity, "%.*s", (int)word.n_bytes, word.at);
    return n > 0 && (size_t)n < capacity;
}

bool bt_disk_mount_source(const char *mountinfo, uint64_t mount_id, char *ret_path, size_t capacity) {
    bt_span rest = bt_span_of(mountinfo);
    bt_span line;
    while (bt_span_line(&rest, &line)) {
        bt_span word;
        uint64_t id = 0;
        if (bt_span_word(&line, &word) && bt_span_number(word, &id) && id == mount_id)
            return source_of(line, ret_path, capacity);
    }
    return false;
}

static void look_at_mount(const char *root, const char *path, bt_disk *ret) {
    struct statx found;
    struct stat device;
    char source[256]; /* "/dev/mapper/..." */
    if (statx(AT_FDCWD, path, 0, STATX_MNT_ID, &found) != 0 || !(found.stx_mask & STATX_MNT_ID)) return;
    bt_proc_text *text = bt_heap_alloc(sizeof *text);
    bool good = text && bt_proc_read(root, "/proc/self/mountinfo", 0, text) == 0 &&
                bt_disk_mount_source(text->data, found.stx_mnt_id, source, sizeof source) &&
                stat(source, &device) == 0 && S_ISBLK(device.st_mode);
    if (good) (void)look_at_device(root, device.st_rdev, ret);
    bt_heap_free(text);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void look_at_file_system(const char *path, bt_disk *ret) {
    struct statfs fs;
    if (statfs(path, &fs) != 0) return;
    uint64_t type = (uint64_t)fs.f_type & UINT32_MAX; /* signed, and sign-extended, on some processors */
    uint32_t fsid[2] = {0, 0};
    memcpy(fsid, &fs.f_fsid, sizeof fsid);
    (void)snprintf(ret->id, sizeof ret->id, "%08" PRIx32 "%08" PRIx32 "-%" PRIx64, fsid[0], fsid[1], type);
    for (uint32_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        if (magics[i].value != type) continue;
        ret->kind = magics[i].kind;
        (void)snprintf(ret->name, sizeof ret->name, "%s", magics[i].name);
    }
}

void bt_disk_find(const char *root, const char *path, bt_disk *ret) {
    *ret = (bt_disk){.kind = BT_DISK_UNKNOWN};
    struct stat file;
    if (stat(path, &file) != 0) return;
    look_at_file_system(path, ret);
    if (ret->name[0]) return;
    if (!look_at_device(root, file.st_dev, ret)) look_at_mount(root, path, ret);
}

/* Of the fastest disk that rotates and is sold (two sets of heads, Seagate Exos 2X18: 554 MB/s), rounded up. */
#define ROTATING_MAX_BYTES_PER_S UINT64_C(600000000)

bool bt_disk_rotates(const bt_disk *disk) {
    return disk->kind == BT_DISK_ROTATING && disk->bytes_per_s <= ROTATING_MAX_BYTES_PER_S;
}

void bt_disk_apply(bt_machine *machine) {
    bool given = machine->disk_bytes_per_s.known && !machine->disk_measured;
    if (given || machine->disk.bytes_per_s == 0) return;
    machine->disk_bytes_per_s = (bt_known){true, machine->disk.bytes_per_s};
    machine->disk_measured = true;
}

void bt_disk_learn(bt_machine *machine, uint32_t depth, uint32_t request_bytes, uint64_t bytes_per_s) {
    machine->disk.depth = depth;
    machine->disk.request_bytes = request_bytes;
    machine->disk.bytes_per_s = bytes_per_s;
    bt_disk_keep(&machine->disk);
    bt_disk_apply(machine);
}
