/* SPDX-License-Identifier: MIT
 *
 * template.cpp: the template worker: a program of its own that renders one conversation with llama.cpp's template
 * engine (common/jinja) and ends. The only C++ of the project.
 *
 *   request on stdin -> parse the template -> run it over the messages -> parts on stdout (template_wire.h)
 *
 * A template is a program that came with a file from somewhere: it can loop, recurse and allocate without end. In a
 * process of its own all three are bounded (argv[1]: bytes; CPU_SECONDS; STACK_BYTES), and whatever it does, the
 * process that holds the model lives. It also gives back every byte when it ends, and none of this code is part of the
 * other commands (docs/decisions/010-template-worker.md).
 *
 * The engine marks which characters came from a message, through all of a template's string operations; the marks go
 * out with the text, so that a message cannot become a control token. What common/chat.cpp does to messages before it
 * runs a template is done here for plain conversations: a system message where the template knows none, typed content.
 * Left out: tools, reasoning as a field of its own, named variants of templates. */

#include "template_wire.h"

#include "jinja/caps.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <stdexcept>

namespace {

constexpr rlim_t CPU_SECONDS = 10;            /* 256 messages of llama.cpp's slowest template take one */
constexpr rlim_t STACK_BYTES = 4u << 20;      /* llama.cpp's templates nest under 40 deep, about 1 KiB a level */
constexpr uint64_t HEAP_BYTES_MIN = 1u << 20; /* enough to say that it is not enough */
constexpr size_t REASON_BYTES_MAX = 300;      /* of an engine's message: it quotes the source after its first lines */

struct message {
    std::string role, content;
};

struct request {
    uint32_t flags = 0;
    std::string source, bos, eos;
    std::vector<message> messages;
};

/* ---- the wire ---- */

void read_all(void *dest, size_t bytes) {
    auto *at = static_cast<char *>(dest);
    while (bytes > 0) {
        ssize_t n = read(STDIN_FILENO, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(1); /* whoever asked is gone */
        at += n;
        bytes -= static_cast<size_t>(n);
    }
}

uint32_t read_u32() {
    uint32_t value;
    read_all(&value, sizeof value);
    return value;
}

std::string read_string() {
    uint32_t n = read_u32();
    if (n > BT_TEMPLATE_WIRE_MAX) throw std::runtime_error("a text is too long");
    std::string text(n, '\0');
    read_all(&text[0], n);
    return text;
}

request read_request() {
    request r;
    if (read_u32() != BT_TEMPLATE_REQUEST) throw std::runtime_error("this program is called by burthen");
    r.flags = read_u32();
    r.source = read_string();
    r.bos = read_string();
    r.eos = read_string();
    uint32_t n = read_u32();
    for (uint32_t i = 0; i < n; i++) {
        message m;
        m.role = read_string();
        m.content = read_string();
        r.messages.push_back(std::move(m));
    }
    return r;
}

void put(FILE *out, const void *data, size_t bytes) {
    (void)fwrite(data, 1, bytes, out); /* the reader notices a reply cut short */
}

void put_u32(FILE *out, size_t value) {
    auto narrow = static_cast<uint32_t>(value);
    put(out, &narrow, sizeof narrow);
}

void put_string(FILE *out, const char *text, size_t n) {
    put_u32(out, n);
    put(out, text, n);
}

/* Heap and other private memory. The heap never shrinks here (main), so this is also its peak; unlike the resident size
 * it is the same each time. */
uint64_t data_bytes() {
    FILE *file = fopen("/proc/self/status", "re");
    char line[128];
    uint64_t kib = 0;
    while (file && kib == 0 && fgets(line, sizeof line, file))
        if (strncmp(line, "VmData:", 7) == 0) kib = strtoull(line + 7, nullptr, 10);
    if (file) (void)fclose(file);
    return kib * 1024;
}

void put_head(FILE *out, uint32_t state) {
    uint64_t peak = data_bytes();
    put_u32(out, BT_TEMPLATE_REPLY);
    put_u32(out, state);
    put(out, &peak, sizeof peak);
}

/* ---- messages as the template wants them ---- */

using jinja::mk_val;
using jinja::value;
using jinja::value_array;
using jinja::value_object;
using jinja::value_string;

std::string trimmed(const std::string &text) {
    const char *blank = " \t\r\n\v\f";
    size_t first = text.find_first_not_of(blank);
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

/* As common/chat.cpp: a template without a system role gets that text in front of the next message. */
void merge_system(std::vector<message> &messages) {
    if (messages.empty() || messages[0].role != "system") return;
    if (messages.size() > 1) messages[1].content = messages[0].content + "\n" + messages[1].content;
    messages.erase(messages.begin());
}

value text_of(const std::string &text, bool of_message) {
    auto string = mk_val<value_string>(text);
    if (of_message) string->mark_input();
    return string;
}

value content_of(const std::string &content, const jinja::caps &caps) {
    if (caps.supports_string_content || !caps.supports_typed_content) return text_of(content, true);
    auto part = mk_val<value_object>();
    part->insert("type", text_of("text", false));
    part->insert("text", text_of(content, true));
    auto parts = mk_val<value_array>();
    parts->push_back(part);
    return parts;
}

value array_of(const std::vector<message> &messages, const jinja::caps &caps) {
    auto array = mk_val<value_array>();
    for (const auto &m : messages) {
        auto object = mk_val<value_object>();
        object->insert("role", text_of(m.role, false));
        object->insert("content", content_of(m.content, caps));
        array->push_back(object);
    }
    return array;
}

std::string today(const char *format) {
    char text[64];
    time_t now = time(nullptr);
    struct tm parts;
    localtime_r(&now, &parts);
    return std::string(text, strftime(text, sizeof text, format, &parts));
}

/* ---- rendering ---- */

using parts = std::vector<jinja::string_part>;

/* The tokenizer puts BOS and EOS where the model wants them: once. */
void cut_ends(const request &r, parts &text) {
    if (text.empty()) return;
    jinja::string_part &first = text.front();
    if ((r.flags & BT_TEMPLATE_ADD_BOS) && !r.bos.empty() && !first.is_input &&
        first.val.compare(0, r.bos.size(), r.bos) == 0)
        first.val.erase(0, r.bos.size());
    jinja::string_part &last = text.back();
    size_t n = r.eos.size();
    if ((r.flags & BT_TEMPLATE_ADD_EOS) && n > 0 && !last.is_input && last.val.size() >= n &&
        last.val.compare(last.val.size() - n, n, r.eos) == 0)
        last.val.erase(last.val.size() - n);
}

parts render(request &r) {
    jinja::lexer lexer;
    auto tokens = lexer.tokenize(r.source);
    jinja::program program = jinja::parse_from_tokens(tokens);
    jinja::caps caps = jinja::caps_get(program);
    if (!caps.supports_system_role) merge_system(r.messages);
    /* StepFun's template: blanks around contents lead the model into loops (common/chat.cpp). */
    if (r.source.find("You have access to the following functions in JSONSchema format") != std::string::npos)
        for (auto &m : r.messages)
            m.content = trimmed(m.content);

    jinja::context context(r.source);
    context.set_val("messages", array_of(r.messages, caps));
    context.set_val("bos_token", text_of(r.bos, false));
    context.set_val("eos_token", text_of(r.eos, false));
    context.set_val("enable_thinking", mk_val<jinja::value_bool>(true));
    context.set_val("datetime", text_of(today("%b %d %Y"), false));
    context.set_val("date_string", text_of(today("%d %b %Y"), false));
    if (r.flags & BT_TEMPLATE_ADD_GENERATION) context.set_val("add_generation_prompt", mk_val<jinja::value_bool>(true));
    jinja::runtime runtime(context);
    parts text = jinja::runtime::gather_string_parts(runtime.execute(program))->val_str.parts;
    cut_ends(r, text);
    return text;
}

/* Ends of a turn that models of two families also spell out in plain tokens (llama.cpp: additional_stops of
 * parsers/ling3.cpp and of the Laguna patch in chat-diff-analyzer.cpp). */
std::vector<std::string> stops_of(const std::string &source) {
    if (source.find("<role>ASSISTANT</role>") != std::string::npos && source.find("<arg_key>") != std::string::npos)
        return {"<|role_end|>"};
    if (source.find("laguna_glm_thinking") != std::string::npos) return {"</assistant>"};
    return {};
}

void answer(FILE *out, const parts &text, const std::vector<std::string> &stops) {
    put_head(out, BT_TEMPLATE_OK);
    put_u32(out, text.size());
    for (const auto &part : text) {
        put_u32(out, part.is_input ? 1 : 0);
        put_string(out, part.val.data(), part.val.size());
    }
    put_u32(out, stops.size());
    for (const auto &stop : stops)
        put_string(out, stop.data(), stop.size());
}

/* The engine's messages: "Error: what", then the source around it over several lines. The last "Jinja Exception: " is
 * the template's own word. */
std::string reason_of(const char *what) {
    std::string text(what);
    const std::string own = "Jinja Exception: ";
    size_t at = text.rfind(own);
    if (at != std::string::npos) text.erase(0, at + own.size());
    size_t end = text.find('\n');
    if (end != std::string::npos && end > 0) text.erase(end);
    if (text.size() > REASON_BYTES_MAX) text.resize(REASON_BYTES_MAX);
    return text;
}

void refuse(FILE *out, uint32_t state, const char *reason) {
    put_head(out, state);
    put_string(out, reason, strlen(reason));
}

void limit(int what, rlim_t most) {
    struct rlimit now;
    if (getrlimit(what, &now) != 0) return;
    if (now.rlim_max < most) most = now.rlim_max;
    struct rlimit wanted = {most, now.rlim_max};
    (void)setrlimit(what, &wanted);
}

} // namespace

/* The bound is on all of this process; its code is not part of its heap. */
void limit_heap(uint64_t bytes) {
    uint64_t least = BT_TEMPLATE_CODE_BYTES + HEAP_BYTES_MIN;
    limit(RLIMIT_DATA, (bytes > least ? bytes : least) - BT_TEMPLATE_CODE_BYTES);
}

/* json.cpp's assertions end here; libggml is not linked. */
extern "C" void ggml_abort(const char *file, int line, const char *format, ...) {
    (void)file;
    (void)line;
    (void)format;
    _exit(1);
}

int main(int argc, char **argv) {
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
    (void)mallopt(M_MMAP_MAX, 0);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, CPU_SECONDS);
    limit(RLIMIT_STACK, STACK_BYTES);
    if (argc > 1) limit_heap(strtoull(argv[1], nullptr, 10));
    FILE *out = stdout;
    try {
        request r = read_request();
        parts text = render(r);
        answer(out, text, stops_of(r.source));
    } catch (const std::bad_alloc &) {
        refuse(out, BT_TEMPLATE_MEMORY, "more memory than it may have");
    } catch (const std::exception &e) {
        refuse(out, BT_TEMPLATE_BAD, reason_of(e.what()).c_str());
    } catch (...) {
        refuse(out, BT_TEMPLATE_BAD, "an unknown failure");
    }
    bool ok = fflush(out) == 0;
    _exit(ok ? 0 : 1);
}
