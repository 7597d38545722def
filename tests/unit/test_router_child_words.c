/* SPDX-License-Identifier: MIT
 * test_router_child_words.c: why a server ended, by its last lines as llama.cpp's programs print them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "router/child.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

typedef struct end_case {
    const char *what;
    int exit_code, signal;
    bool oom_killed;
    const char *lines;
    bt_child_failure failure;
    const char *words; /* the line, or its start */
    uint64_t need_bytes, have_bytes;
    const char *device;
} end_case;

static const end_case cases[] = {
    {"CUDA, weights", 1, 0, false,
     "0.02.011.112 I load_tensors: loading model tensors\n"
     "0.02.311.112 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4168.09 MiB on device 1: cudaMalloc "
     "failed: "
     "out of memory\n"
     "0.02.311.113 E alloc_tensor_range: failed to allocate CUDA1 buffer of size 4370554880\n"
     "0.02.511.262 E llama_model_load: error loading model: unable to allocate CUDA1 buffer\n"
     "0.02.511.266 E llama_model_load_from_file_impl: failed to load model\n"
     "0.02.511.948 E cmn  common_init_: failed to load model 'big.gguf'\n"
     "0.02.511.985 E srv    load_model: failed to load model, 'big.gguf'\n"
     "0.02.611.581 E srv  llama_server: exiting due to model loading error\n",
     BT_CHILD_DEVICE_MEMORY,
     "0.02.311.112 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4168.09 MiB on device 1: cudaMalloc "
     "failed: "
     "out of memory",
     UINT64_C(4370559139), 0, "CUDA1"},
    {"CUDA, the name of its line alone", 1, 0, false,
     "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0: cudaMalloc failed: out of "
     "memory\n",
     BT_CHILD_DEVICE_MEMORY, "ggml_backend_cuda", 512 * MIB, 0, "CUDA0"},
    {"ROCm names itself in the second line", 1, 0, false,
     "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory\n"
     "ggml_gallocr_reserve_n_impl: failed to allocate ROCm0 buffer of size 536870912\n",
     BT_CHILD_DEVICE_MEMORY, "ggml_backend_cuda", 512 * MIB, 0, "ROCm0"},
    {"CUDA, while it computes", -1, SIGABRT, false,
     "CUDA error: out of memory\n  current device: 0, in function alloc at ggml-cuda.cu:480\n"
     "ggml-cuda.cu:97: CUDA error\n",
     BT_CHILD_DEVICE_MEMORY, "CUDA error: out of memory", 0, 0, ""},
    {"Vulkan", 1, 0, false,
     "ggml_vulkan: Device memory allocation of size 1073741824 failed.\n"
     "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"
     "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 2147483648\n"
     "llama_model_load: error loading model: unable to allocate Vulkan0 buffer\n",
     BT_CHILD_DEVICE_MEMORY, "ggml_vulkan: Device memory allocation of size 1073741824 failed.", 1024 * MIB, 0,
     "Vulkan0"},
    {"a card elsewhere", 1, 0, false,
     "alloc_tensor_range: failed to allocate RPC0[10.0.0.2:50052] buffer of size 1048576\n", BT_CHILD_DEVICE_MEMORY,
     "alloc_tensor_range", MIB, 0, "RPC0[10.0.0.2:50052]"},
    {"Metal", 1, 0, false, "ggml_metal_buffer: failed to allocate Metal buffer of 1048576 bytes (out of memory)\n",
     BT_CHILD_DEVICE_MEMORY, "ggml_metal", MIB, 0, "Metal"},
    {"PyTorch", 1, 0, false,
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB "
     "of "
     "which 1.50 GiB is free.\n",
     BT_CHILD_DEVICE_MEMORY, "torch.OutOfMemoryError", 2048 * MIB, 1536 * MIB, ""},
    {"the host's buffers", 1, 0, false,
     "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 8589934592\n"
     "alloc_tensor_range: failed to allocate CPU buffer of size 8589934592\n"
     "llama_model_load: error loading model: unable to allocate CPU buffer\n",
     BT_CHILD_HOST_MEMORY, "alloc_tensor_range: failed to allocate CPU", 8192 * MIB, 0, ""},
    {"our own device is the host's memory", 1, 0, false,
     "alloc_tensor_range: failed to allocate Burthen0 buffer of size 1048576\n", BT_CHILD_HOST_MEMORY, "alloc_tensor",
     MIB, 0, ""},
    {"pinned memory is not needed", 1, 0, false,
     "ggml_cuda_host_malloc: failed to allocate 100.00 MiB of pinned memory: out of memory\nbad things\n",
     BT_CHILD_OTHER, "bad things", 0, 0, ""},
    {"an allocation", -1, SIGABRT, false,
     "ggml_aligned_malloc: insufficient memory (attempted to allocate 300.00 MB)\n"
     "ggml.c:413: fatal error\n",
     BT_CHILD_HOST_MEMORY, "ggml_aligned_malloc", 300 * MIB, 0, ""},
    {"C++", -1, SIGABRT, false,
     "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
     BT_CHILD_HOST_MEMORY, "terminate called", 0, 0, ""},
    {"no file of a model", 1, 0, false,
     "0.00.015.478 E gguf_init_from_reader: failed to read magic\n"
     "0.00.017.900 E llama_model_load: error loading model: llama_model_loader: failed to load model from /dev/null\n"
     "0.00.017.907 E llama_model_load_from_file_impl: failed to load model\n"
     "0.00.017.985 E srv    load_model: failed to load model, '/dev/null'\n"
     "0.00.017.988 I srv    operator(): operator(): cleaning up before exit...\n"
     "0.00.018.581 E srv  llama_server: exiting due to model loading error\n\n",
     BT_CHILD_BAD_MODEL,
     "0.00.017.900 E llama_model_load: error loading model: llama_model_loader: failed to load model from /dev/null", 0,
     0, ""},
    {"a port", 1, 0, false,
     "0.00.001.000 E srv  start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080\n"
     "0.00.001.100 E srv  llama_server: exiting due to HTTP server error\n",
     BT_CHILD_PORT, "0.00.001.000 E srv  start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", 0,
     0, ""},
    {"refused by exec", 3, 0, false,
     "burthen: note: something\n"
     "burthen: refused: context 256 needs at least 72.0 MiB, the memory budget is 20.0 MiB: 52.0 MiB short\n"
     "  CUDA0/weights   100.0 MiB\n",
     BT_CHILD_REFUSED, "context 256 needs at least 72.0 MiB, the memory budget is 20.0 MiB: 52.0 MiB short", 72 * MIB,
     20 * MIB, ""},
    {"refused for the host's memory", 3, 0, false,
     "burthen: refused: insufficient memory: big.gguf needs 12.50 GiB of the host, which has 7.50 GiB\n",
     BT_CHILD_REFUSED, "insufficient memory: big.gguf needs", 12800 * MIB, 7680 * MIB, ""},
    {"refused for a card's", 3, 0, false,
     "burthen: refused: insufficient VRAM: big.gguf needs 961.5 MiB on devices even with all that can be moved on the "
     "host, more than there is; 512.0 MiB is free\n",
     BT_CHILD_REFUSED, "insufficient VRAM: big.gguf needs", 961 * MIB + MIB / 2, 512 * MIB, ""},
    {"refused under the floor", 3, 0, false,
     "burthen: refused: insufficient VRAM: with 1000.0 MiB to use of 7.45 GiB free, big.gguf would have 36 % of it on "
     "devices, under the floor of 50 %\n",
     BT_CHILD_REFUSED, "insufficient VRAM: with", 0, 1000 * MIB, ""},
    {"3 of another program", 3, 0, false, "three\n", BT_CHILD_OTHER, "three", 0, 0, ""},
    {"exec cannot read the model", 4, 0, false, "burthen: error: not a GGUF file\n", BT_CHILD_BAD_MODEL,
     "not a GGUF file", 0, 0, ""},
    {"not there", 127, 0, false, "burthen: cannot start nothing-of-this-name: No such file or directory\n",
     BT_CHILD_NOT_STARTED, "burthen: cannot start nothing", 0, 0, ""},
    {"not to be started", 126, 0, false, "", BT_CHILD_NOT_STARTED, "", 0, 0, ""},
    {"counted by the kernel", -1, SIGKILL, true, "all is well\n", BT_CHILD_HOST_MEMORY, "killed by the system: ", 0, 0,
     ""},
    {"counted, below a shell", 137, 0, true, "Killed\n", BT_CHILD_HOST_MEMORY, "killed by the system: ", 0, 0, ""},
    {"a kill that nobody counted", -1, SIGKILL, false, "all is well\nstd::bad_alloc\n", BT_CHILD_OTHER,
     "killed by signal 9", 0, 0, ""},
    {"counted, but it was another", 1, 0, true, "oops\n", BT_CHILD_OTHER, "oops", 0, 0, ""},
    {"a crash with a reason", -1, SIGABRT, false, "ggml.c:1: GGML_ASSERT(a == b) failed\n[New LWP 1]\n#0 0x0 in x\n",
     BT_CHILD_OTHER, "ggml.c:1: GGML_ASSERT(a == b) failed", 0, 0, ""},
    {"a crash", -1, SIGSEGV, false, "the last\n\n", BT_CHILD_OTHER, "killed by signal 11: the last", 0, 0, ""},
    {"a crash without a word", -1, SIGSEGV, false, "", BT_CHILD_OTHER, "killed by signal 11", 0, 0, ""},
    {"the end", 0, 0, false, "failed to load model\nbye\n", BT_CHILD_NO_FAILURE, "bye", 0, 0, ""},
    {"the end of a silent one", 0, 0, false, "", BT_CHILD_NO_FAILURE, "", 0, 0, ""},
    {"an error without a word", 9, 0, false, "", BT_CHILD_OTHER, "", 0, 0, ""},
    {"words that drive a terminal", 1, 0, false, "\x1b[2Jgone\n", BT_CHILD_OTHER, "\\x1b[2Jgone", 0, 0, ""},
    {"numbers that are none", 1, 0, false,
     "allocating nan MiB on device x: cudaMalloc failed\nfailed to allocate  buffer of size "
     "99999999999999999999999999\n",
     BT_CHILD_DEVICE_MEMORY, "allocating nan", 0, 0, ""},
};

static void ends_are_told_apart(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const end_case *c = &cases[i];
        bt_child_end end;
        bt_child_classify(c->exit_code, c->signal, c->oom_killed, c->lines, &end);
        if (end.failure != c->failure || strncmp(end.words, c->words, strlen(c->words)) != 0 ||
            end.need_bytes.known != (c->need_bytes != 0) || end.need_bytes.value != c->need_bytes ||
            end.have_bytes.value != c->have_bytes || strcmp(end.device, c->device) != 0)
            fail_msg("%s: %d, '%s', need %llu, have %llu, device '%s'", c->what, (int)end.failure, end.words,
                     (unsigned long long)end.need_bytes.value, (unsigned long long)end.have_bytes.value, end.device);
        assert_int_equal(end.exit_code, c->signal ? -1 : c->exit_code);
        assert_int_equal(end.signal, c->signal);
        assert_false(end.asked);
    }
}

static void long_words_are_cut(void **state) {
    (void)state;
    char lines[2000];
    memset(lines, 'x', sizeof lines);
    lines[sizeof lines - 1] = '\0';
    bt_child_end end;
    bt_child_classify(1, 0, false, lines, &end);
    assert_int_equal(strlen(end.words), BT_CHILD_WORDS_BYTES - 1);
}

static void failures_have_names(void **state) {
    (void)state;
    assert_null(bt_child_failure_name(BT_CHILD_NO_FAILURE));
    assert_string_equal(bt_child_failure_name(BT_CHILD_DEVICE_MEMORY), "out_of_device_memory");
    assert_string_equal(bt_child_failure_name(BT_CHILD_HOST_MEMORY), "out_of_memory");
    assert_string_equal(bt_child_failure_name(BT_CHILD_BAD_MODEL), "bad_model");
    assert_string_equal(bt_child_failure_name(BT_CHILD_PORT), "port_in_use");
    assert_string_equal(bt_child_failure_name(BT_CHILD_REFUSED), "insufficient_memory");
    assert_string_equal(bt_child_failure_name(BT_CHILD_NOT_STARTED), "not_started");
    assert_string_equal(bt_child_failure_name(BT_CHILD_OTHER), "crashed");
    assert_null(bt_child_failure_name((bt_child_failure)99));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_told_apart),
        cmocka_unit_test(long_words_are_cut),
        cmocka_unit_test(failures_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
