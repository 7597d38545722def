/* SPDX-License-Identifier: MIT
 * The examples of FIPS 180-2 appendix B (and the empty message of NIST's short-message vectors), whole and in pieces.
 */
#include "model/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void check(const char *text, size_t piece, const char *expected) {
    bt_sha256 hash;
    char hex[65];
    size_t n = strlen(text);
    bt_sha256_init(&hash);
    for (size_t at = 0; at < n; at += piece)
        bt_sha256_add(&hash, text + at, n - at < piece ? n - at : piece);
    bt_sha256_hex(&hash, hex);
    assert_string_equal(hex, expected);
}

static void vectors(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 7, 55, 56, 63, 64, 65, 1000};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        check("", pieces[i], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check("abc", pieces[i], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", pieces[i],
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        check("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrst"
              "nopqrstu",
              pieces[i], "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    }
}

static void a_million_a(void **state) {
    (void)state;
    char text[1000];
    char hex[65];
    bt_sha256 hash;
    memset(text, 'a', sizeof text);
    bt_sha256_init(&hash);
    for (unsigned i = 0; i < 1000; i++)
        bt_sha256_add(&hash, text, sizeof text);
    bt_sha256_hex(&hash, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* What follows each other is told apart, and the ways to add are those of the bytes. */
static void pieces_of_a_name(void **state) {
    (void)state;
    const uint64_t number = UINT64_C(0x0102030405060708);
    char hex[3][65];
    bt_sha256 hash;
    for (int i = 0; i < 3; i++) {
        bt_sha256_init(&hash);
        if (i == 0) bt_sha256_add(&hash, "a\0b", 4);
        if (i == 1) bt_sha256_add_text(&hash, "a"), bt_sha256_add_text(&hash, "b");
        if (i == 2) bt_sha256_add_text(&hash, "ab");
        if (i == 0) bt_sha256_add(&hash, &number, sizeof number);
        if (i != 0) bt_sha256_add_u64(&hash, number);
        bt_sha256_hex(&hash, hex[i]);
        assert_true(bt_sha256_is_hex(hex[i]));
    }
    assert_string_equal(hex[0], hex[1]);
    assert_string_not_equal(hex[1], hex[2]);
    assert_false(bt_sha256_is_hex(hex[0] + 1));
    hex[0][63] = 'F';
    assert_false(bt_sha256_is_hex(hex[0]));
    hex[0][63] = '/';
    assert_false(bt_sha256_is_hex(hex[0]));
}

static void files(void **state) {
    (void)state;
    char path[] = BT_TEST_OUT "/sha256-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *const none[] = {NULL, "/nonexistent", "/dev/null", BT_TEST_OUT};
    char empty[65], before[65], after[65];
    bt_sha256 hash;
    bt_sha256_init(&hash);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(bt_sha256_add_file(&hash, none[i]));
    bt_sha256_hex(&hash, empty); /* nothing was added */
    assert_string_equal(empty, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    bt_sha256_init(&hash);
    assert_true(bt_sha256_add_file(&hash, path));
    bt_sha256_hex(&hash, before);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(close(fd), 0);
    bt_sha256_init(&hash);
    assert_true(bt_sha256_add_file(&hash, path));
    bt_sha256_hex(&hash, after);
    assert_string_not_equal(before, after);
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(a_million_a),
                                       cmocka_unit_test(pieces_of_a_name), cmocka_unit_test(files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
