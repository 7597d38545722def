/* SPDX-License-Identifier: MIT
 * test_terminal.c: what may go to a terminal. The file under test belongs to the program and not to the library, so it
 * is compiled in here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/terminal.c"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static const char *term, *no_color;

static const char *environment(const char *name) {
    if (strcmp(name, "TERM") == 0) return term;
    if (strcmp(name, "NO_COLOR") == 0) return no_color;
    return NULL;
}

/* The two ends of a terminal: ours to read, and the stream that is one. */
static FILE *open_pty(int *ret_master) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) skip();
    char name[64];
    assert_int_equal(ptsname_r(master, name, sizeof name), 0);
    int slave = open(name, O_RDWR | O_NOCTTY);
    FILE *stream = slave < 0 ? NULL : fdopen(slave, "r+");
    if (!stream) skip();
    *ret_master = master;
    return stream;
}

static void test_a_file_is_no_terminal(void **state) {
    (void)state;
    term = "xterm";
    no_color = NULL;
    FILE *file = tmpfile();
    assert_non_null(file);
    bt_terminal t;
    bt_terminal_open(&t, file, environment);
    assert_false(t.is_terminal || t.has_colour || t.has_bar);
    assert_int_equal(t.n_columns, 80);
    assert_string_equal(bt_terminal_colour(&t, BT_COLOUR_RED), "");
    bt_terminal_bar(&t, "loading", 1, 2);
    bt_terminal_bar_end(&t);
    bt_terminal_write(&t, "\x1b[1m\xE2", 5); /* bytes as they are, cut characters too */
    bt_terminal_write(&t, "\x82\xAC\r", 3);
    assert_true(bt_terminal_flush(&t));
    char bytes[32] = "";
    rewind(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), 8);
    assert_memory_equal(bytes, "\x1b[1m\xE2\x82\xAC\r", 8);
    assert_int_equal(fclose(file), 0);
}

static void test_a_terminal(void **state) {
    (void)state;
    int master = -1;
    FILE *stream = open_pty(&master);
    struct winsize size = {.ws_row = 10, .ws_col = 33};
    assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
    bt_terminal t;
    term = "xterm";
    no_color = NULL;
    bt_terminal_open(&t, stream, environment);
    assert_true(t.is_terminal && t.has_colour && t.has_bar);
    assert_int_equal(t.n_columns, 33);
    assert_string_equal(bt_terminal_colour(&t, BT_COLOUR_NONE), "\033[0m");
    no_color = "1";
    bt_terminal_open(&t, stream, environment);
    assert_true(t.has_bar && !t.has_colour);
    no_color = ""; /* set and empty is not set */
    bt_terminal_open(&t, stream, environment);
    assert_true(t.has_colour);
    term = "dumb";
    bt_terminal_open(&t, stream, environment);
    assert_true(t.is_terminal && !t.has_colour && !t.has_bar);
    term = NULL;
    bt_terminal_open(&t, stream, environment);
    assert_true(t.is_terminal && !t.has_colour && !t.has_bar);

    term = "xterm";
    bt_terminal_open(&t, stream, environment);
    bt_terminal_write(&t, "a\x1b[2J\xE2\x82", 7);
    bt_terminal_write(&t, "\xAC\xC3", 2);
    assert_true(bt_terminal_flush(&t));
    bt_terminal_bar(&t, "load", 1, 2);
    uint64_t drawn_ns = t.bar_drawn_ns;
    bt_terminal_bar(&t, "load", 1, 2); /* not due, unless the machine has made a pause */
    bool twice = t.bar_drawn_ns != drawn_ns;
    assert_true(!twice || t.bar_drawn_ns - drawn_ns >= 100000000);
    bt_terminal_bar_end(&t);
    bt_terminal_bar_end(&t); /* nothing to end */
    char bytes[256] = "";
    size_t n = 0;
    static const char bar[] = "\rload [#########..........]  50 %\033[K";
    char expected[256];
    size_t n_expected =
        (size_t)snprintf(expected, sizeof expected, "a\\x1b[2J\xE2\x82\xAC\\xc3%s%s\r\033[K", bar, twice ? bar : "");
    struct pollfd ready = {.fd = master, .events = POLLIN};
    /* A poll may say "ready" a moment before there is something to read. */
    assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
    for (int tries = 0; tries < 100 && n < n_expected && poll(&ready, 1, 10000) == 1; tries++) {
        ssize_t got = read(master, bytes + n, sizeof bytes - 1 - n);
        assert_true(got > 0 || errno == EAGAIN);
        if (got > 0)
            n += (size_t)got;
        else
            (void)usleep(10000); /* poll again in 10 ms */
    }
    assert_string_equal(bytes, expected);
    (void)fclose(stream);
    (void)close(master);
}

/* The pieces of s, cut at every place, come out as the whole does. */
static void check_escape(const char *s, size_t n, const char *expected) {
    for (size_t cut = 0; cut <= n; cut++) {
        bt_terminal t = {0};
        bt_text out;
        bt_text_init(&out, 1024);
        bt_terminal_escape(&t, s, cut, &out);
        bt_terminal_escape(&t, s + cut, n - cut, &out);
        bt_text_add_escaped(&out, t.pending, t.n_pending);
        if (strcmp(bt_text_str(&out), expected) != 0) fail_msg("cut at %zu: %s", cut, bt_text_str(&out));
        bt_text_done(&out);
    }
    bt_terminal t = {0}; /* and byte by byte */
    bt_text out;
    bt_text_init(&out, 1024);
    for (size_t i = 0; i < n; i++) {
        bt_terminal_escape(&t, s + i, 1, &out);
        assert_true(t.n_pending < 4);
    }
    bt_text_add_escaped(&out, t.pending, t.n_pending);
    assert_string_equal(bt_text_str(&out), expected);
    bt_text_done(&out);
}

#define CHECK_ESCAPE(s, expected) check_escape((s), sizeof(s) - 1, (expected))

static void test_escape(void **state) {
    (void)state;
    CHECK_ESCAPE("", "");
    CHECK_ESCAPE("plain\ntext\t1", "plain\ntext\t1");
    CHECK_ESCAPE("\r\b\x7f\x1b]0;x\a", "\\x0d\\x08\\x7f\\x1b]0;x\\x07");
    CHECK_ESCAPE("\xC2\x9B"
                 "31m",
                 "\\xc2\\x9b31m"); /* C1's CSI */
    CHECK_ESCAPE("\xE2\x82\xAC \xF0\x9F\x9A\xA2 \xC3\xA9", "\xE2\x82\xAC \xF0\x9F\x9A\xA2 \xC3\xA9");
    CHECK_ESCAPE("\xE2\x82", "\\xe2\\x82");              /* never ends */
    CHECK_ESCAPE("\xF0\x9F\x9A", "\\xf0\\x9f\\x9a");     /* nor this */
    CHECK_ESCAPE("\xE2\xC3\xA9", "\\xe2\xC3\xA9");       /* another begins */
    CHECK_ESCAPE("\xE2\x82\x1b[m", "\\xe2\\x82\\x1b[m"); /* a sequence after a cut one */
    CHECK_ESCAPE("\xF0\x9F\xF0\x9F\x9A\xA2", "\\xf0\\x9f\xF0\x9F\x9A\xA2");
    CHECK_ESCAPE("\xFF\xFE\x80\x80\x80\x80", "\\xff\\xfe\\x80\\x80\\x80\\x80");
    CHECK_ESCAPE("a\0b", "a\\x00b");
}

static void check_bar(uint32_t n_columns, const char *label, uint64_t done, uint64_t total, const char *expected) {
    bt_text out;
    bt_text_init(&out, 1024);
    bt_terminal_bar_format(n_columns, label, done, total, &out);
    assert_string_equal(bt_text_str(&out), expected);
    assert_true(out.n_bytes < n_columns);
    bt_text_done(&out);
}

static void test_fold(void **state) {
    (void)state;
    static const char sentence[] = "Verdict: streams: runs from disk\n";
    static const char row[] = "  one          two three four five six\n";
    static const struct {
        const char *text, *folded; /* NULL: as it is */
    } cases[] = {
        {sentence, "Verdict: streams:\n  runs from disk\n"},
        {row, NULL},
        {"twenty columns are it", "twenty columns are\n  it"},
        {"twenty columns fit i", NULL},
        {"  indented sentences go further in", "  indented sentences\n    go further in"},
        {"awordthatislongerthanitsline follows", "awordthatislongerthanitsline\n  follows"},
        {"\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9 are eight", NULL},
        {"", NULL},
        {"\n\n", NULL},
    };
    bt_terminal t = {.is_terminal = true, .n_columns = 20};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_text text;
        bt_text_init(&text, 4096);
        bt_terminal_fold(&t, cases[i].text, &text);
        assert_string_equal(bt_text_str(&text), cases[i].folded ? cases[i].folded : cases[i].text);
        bt_text_done(&text);
    }
    t.is_terminal = false;
    bt_text text;
    bt_text_init(&text, 4096);
    bt_terminal_fold(&t, sentence, &text);
    assert_string_equal(bt_text_str(&text), sentence);
    bt_text_done(&text);
}

static void test_bar(void **state) {
    (void)state;
    check_bar(80, "load", 0, 100, "load [..............................]   0 %");
    check_bar(80, "load", 50, 100, "load [###############...............]  50 %");
    check_bar(80, "load", 99, 100, "load [#############################.]  99 %");
    check_bar(80, "load", 100, 100, "load [##############################] 100 %");
    check_bar(80, "load", 200, 100, "load [##############################] 100 %");
    check_bar(80, "load", 0, 0, "load [##############################] 100 %");
    check_bar(80, "load", UINT64_MAX / 2, UINT64_MAX, "load [##############................]  49 %");
    check_bar(20, "load", 50, 100, "load [###...]  50 %");
    check_bar(16, "load", 50, 100, "load  50 %");
    check_bar(10, "loading it", 1, 2, "loading i");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_is_no_terminal),
        cmocka_unit_test(test_a_terminal),
        cmocka_unit_test(test_escape),
        cmocka_unit_test(test_fold),
        cmocka_unit_test(test_bar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
