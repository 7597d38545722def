# SPDX-License-Identifier: MIT
"""The router's page in a real browser: what it shows as it happens, what can be done with it, and by whom.

By whom: with a key or without, on a phone, at 200 %, without a mouse, with either theme, without motion. Contrast is
computed from what the browser has computed, for every text that is seen."""

import http.client
import pathlib
import signal
import sys
import tempfile
import threading

import browser
import harness
import router

CHANGES = "#plan-answer .changes button"
checks = harness.Checks()
STUB = f"{sys.executable} {harness.SOURCE / 'tests/support/stub_server.py'} --port ${{PORT}}"
FOLDER = tempfile.TemporaryDirectory()
BETA = pathlib.Path(FOLDER.name) / "beta"  # it is loaded when that is there
MARKUP = "<b>bold</b> & <img src=x onerror=document.title='owned'>"
ODD = 'org/an "odd" <b>näme</b> %41?'

CONFIG = f"""
ram_budget: 500M
hold: 0
models:
  smol: {{model: {harness.SMOLLM2}, args: "-c 512 -np 1 -t 1"}}
  alpha: {{cmd: "{STUB} --mem 90M --token-ms 40 --tokens 40000", memory: {{host: 300M}}}}
  beta: {{cmd: "{STUB} --mem 90M --until {BETA}", memory: {{host: 310M}}}}
  big: {{cmd: "{STUB}", memory: {{host: 4G}}}}
  '{ODD}': {{cmd: "{STUB} ", memory: {{host: 20M}}}}
"""


def url(serve):
    return f"http://127.0.0.1:{serve.port}/"


def head(serve, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", serve.port, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def check_files(serve):
    """Types, tags, what a browser is told to allow; HEAD; what is not there."""
    page, body = head(serve, "/")
    policy = page.headers["Content-Security-Policy"]
    for word in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"):
        checks.check(word in policy, f"the policy has {word}: {policy}")
    checks.check("unsafe" not in policy, f"the policy allows nothing inline: {policy}")
    checks.check(b"<style" not in body and b" style=" not in body and b" onclick" not in body, "the page has something inline")
    checks.check(page.headers["X-Content-Type-Options"] == "nosniff" and page.headers["Referrer-Policy"] == "no-referrer",
                 f"headers: {page.headers}")
    for path, kind in (("/", "text/html"), ("/web/app.js", "text/javascript"), ("/web/style.css", "text/css"),
                       ("/web/icon.svg", "image/svg+xml")):
        answer, body = head(serve, path)
        checks.check(answer.status == 200 and answer.headers["Content-Type"].startswith(kind), f"{path}: {answer.headers}")
        again, rest = head(serve, path, **{"If-None-Match": answer.headers["ETag"]})
        checks.check(again.status == 304 and not rest, f"{path} with its tag: {again.status}, {len(rest)} bytes")
        only, rest = head(serve, path, "HEAD")
        checks.check(only.status == 200 and not rest and int(only.headers["Content-Length"]) == len(body),
                     f"HEAD {path}: {only.status}, {only.headers}")
    for path, method, status in (("/web/none.js", "GET", 404), ("/web/", "GET", 404), ("/", "POST", 405), ("/web/app.js", "PUT", 405)):
        answer, _ = head(serve, path, method)
        checks.check(answer.status == status, f"{method} {path}: {answer.status}, not {status}")


def card(page, model, part):
    """The text of a part of a model's card."""
    return page.run("""const card = [...document.querySelectorAll('#model-list .card')].find((one) => one.querySelector('h3').innerText.trim() === arguments[0]);
        const part = card?.querySelector(arguments[1]); return part ? part.innerText : null""", model, part)


def state(page, model):
    return card(page, model, ".chip")


def check_begin(page, serve):
    page.go(url(serve))
    checks.check(page.wait(lambda: page.text("#link") == "Live"), f"the page is live: {page.text('#link')}")
    checks.check(page.wait(lambda: card(page, "smol", ".about") and "llama" in card(page, "smol", ".about")),
                 f"what smol is: {card(page, 'smol', '.about')}")
    checks.check(page.text("#glance-loaded") == "No model", f"loaded: {page.text('#glance-loaded')}")
    for model in ("smol", "alpha", "beta", "big"):
        checks.check(state(page, model) == "stopped", f"{model}: {state(page, model)}")
    checks.check("300.0 MiB" in card(page, "alpha", "dl"), f"alpha's need: {card(page, 'alpha', 'dl')}")
    complaints = page.complaints()
    checks.check(not complaints, f"the console is silent: {complaints}")


def check_swap(page, serve):
    """Loaded by its button; another one comes, and the page says so by itself, with the numbers."""
    page.click("button[aria-label='Load alpha']")
    checks.check(page.wait(lambda: state(page, "alpha") == "ready"), f"alpha was loaded: {state(page, 'alpha')}")
    checks.check(page.wait(lambda: page.text("#glance-loaded") == "1 of 5 models" and "alpha" in page.text("#glance-models")),
                 f"loaded: {page.text('#glance-loaded')}: {page.text('#glance-models')}")
    checks.check(page.wait(lambda: "300.0 MiB" in page.text(".holders tbody")), f"holders: {page.text('.holders tbody')}")
    asking = threading.Thread(target=lambda: serve.chat("beta", "Hello"))
    asking.start()
    checks.check(page.wait(lambda: state(page, "beta") == "starting"), f"beta is seen to start: {state(page, 'beta')}")
    BETA.touch()
    asking.join()
    checks.check(page.wait(lambda: state(page, "alpha") == "stopped" and state(page, "beta") == "ready"), "beta came for alpha")
    words = page.wait(lambda: (page.text("#glance-last") or "").startswith("alpha was unloaded for beta") and page.text("#glance-last"))
    checks.check(words and "300.0 MiB" in words and "310.0 MiB" in words, f"why: {page.text('#glance-last')}")
    said = page.wait(lambda: "beta" in page.run("return document.querySelector('#live').textContent"))
    checks.check(said, "the change was said to those who do not see it")
    row = page.wait(lambda: page.text("#request-rows"))
    checks.check(row and "beta" in row and "ok" in row, f"the request is in the list: {row}")
    page.click("button[aria-label='Load big']")
    checks.check(page.wait(lambda: "4.00 GiB" in (card(page, "big", ".error") or "")), f"why big does not load: {card(page, 'big', '.error')}")
    page.click("button[aria-label='Unload beta']")
    checks.check(page.wait(lambda: state(page, "beta") == "stopped"), "beta was unloaded by its button")


def choose(page, selector, value):
    page.wait(lambda: page.run("return [...document.querySelector(arguments[0]).options].some((one) => one.value === arguments[1])", selector, value))
    page.fill(selector, value)


def last_answer(page):
    return page.run("return [...document.querySelectorAll('#chat-log .say.model .text')].pop()?.textContent ?? null")


def check_chat(page, serve):
    """It streams, it stops and the server sees that; errors are shown; what is said never becomes markup."""
    page.click("button[aria-label='Chat with alpha']")
    checks.check(page.run("return document.activeElement.id") == "chat-text", "the message field has the focus")
    page.type("#chat-text", MARKUP)
    page.press("Enter")
    first = page.wait(lambda: last_answer(page))
    more = page.wait(lambda: len(last_answer(page)) > len(first or "") and last_answer(page))
    checks.check(first and more and more.startswith(first), f"the answer grows: {first!r}, {more!r}")
    checks.check(page.wait(lambda: all(word in (page.text("#running-rows") or "") for word in ("alpha", "answering"))),
                 f"the request is seen to run: {page.text('#running-rows')}")
    page.click("#chat-stop")
    foot = page.wait(lambda: page.run("const f = [...document.querySelectorAll('.say.model > .quiet')].pop().innerText; return f.startsWith('stopped') && f"))
    checks.check(foot, "it says that it was stopped")
    gone = page.wait(lambda: serve.ask("/upstream/alpha/stub")["n_gone"] == 1)
    checks.check(gone, "the server saw that the client left")
    echoed = page.run("return document.querySelector('.say.user .text').textContent")
    checks.check(echoed == MARKUP and page.run("return document.querySelector('.say b, .say img')") is None, f"markup stays text: {echoed!r}")
    choose(page, "#chat-model", "big")
    page.fill("#chat-text", "Hello")
    page.click("#chat-send")
    checks.check(page.wait(lambda: "insufficient_memory" in page.text("#chat-error")), f"an error is shown: {page.text('#chat-error')!r}")
    checks.check(page.run("return document.querySelector('#chat-text').value") == "Hello", "what was typed is not lost")
    page.complaints()  # the browser itself notes the 503


def check_chat_real(page):
    """A model that is one."""
    if not (harness.LLAMA_BIN / "llama-server").exists():
        return
    page.click("#chat-clear")
    choose(page, "#chat-model", "smol")
    page.fill("#chat-max", "12")
    page.fill("#chat-text", "Say hello.")
    page.click("#chat-send")
    foot = page.wait(lambda: page.run("const f = document.querySelector('.say.model > .quiet')?.innerText || ''; return f.includes('tokens/s') && f"), 180)
    checks.check(foot and last_answer(page).strip(), f"smol answers: {last_answer(page)!r}, {foot!r}")
    checks.check(page.wait(lambda: state(page, "smol") == "ready"), "and is shown as ready")


def check_odd(page):
    """A name with everything in it that an address, a selector or markup could stumble over."""
    press = """[...document.querySelectorAll('#model-list .card')].find((one) => one.querySelector('h3').innerText.trim() === arguments[0])
        .querySelector('.row button').click()"""
    page.run(press, ODD)
    checks.check(page.wait(lambda: state(page, ODD) == "ready"), f"it loads: {state(page, ODD)}, {card(page, ODD, '.error')!r}")
    page.click("#chat-clear")
    choose(page, "#chat-model", ODD)
    page.fill("#chat-max", "3")
    page.fill("#chat-text", "Hello")
    page.click("#chat-send")
    checks.check(page.wait(lambda: last_answer(page) == "one two three"), f"it answers: {last_answer(page)!r}")
    choose(page, "#log-source", ODD)
    page.run("document.querySelector('#logs').scrollIntoView({behavior: 'instant'})")
    checks.check(page.wait(lambda: "server is listening" in page.text("#log-text")), "its log")
    page.run(press, ODD)
    checks.check(page.wait(lambda: state(page, ODD) == "stopped"), f"and unloads: {state(page, ODD)}, {card(page, ODD, '.error')!r}")
    checks.check(page.run("return document.querySelector('#content b')") is None, "its name is text")
    choose(page, "#log-source", "")


def check_plan(page):
    """What does not fit, and what would: one press away."""
    page.run("document.querySelector('#plan').scrollIntoView({behavior: 'instant'})")
    choose(page, "#plan-model", "smol")
    page.fill("#plan-ctx", "4096")
    page.fill("#plan-ram", "120M")
    checks.check(page.wait(lambda: "Does not fit" in (page.text("#plan-answer") or "") and "context 4096" in page.text("#plan-answer")),
                 f"a refusal: {page.text('#plan-answer')}")

    def changes():
        return page.run(f"return [...document.querySelectorAll('{CHANGES}')].map((one) => one.innerText)")

    checks.check(page.wait(lambda: len(changes()) >= 2 and any("-c " in one for one in changes())), f"its changes: {changes()}")
    checks.check(page.wait(lambda: all(word in page.text("#plan-tables") for word in ("context (KV cache)", "all weights stay"))), "ledger and ladder")
    page.run(f"document.querySelector('{CHANGES}').click()")
    checks.check(page.wait(lambda: "Fits" in (page.text("#plan-answer") or "")), f"the first change does: {page.text('#plan-answer')}")
    page.fill("#plan-ram", "lots of it")
    checks.check(page.wait(lambda: page.text("#plan-error")), "a budget that is none is told")
    page.fill("#plan-ram", "")
    checks.check(page.wait(lambda: not page.text("#plan-error") and page.text("#plan-answer")), "and forgotten when it is mended")
    page.complaints()  # the browser itself notes the 400


def check_logs(page, serve):
    page.run("document.querySelector('#logs').scrollIntoView({behavior: 'instant'})")
    checks.check(page.wait(lambda: "decision: admit" in (page.text("#log-text") or "")), f"the router's log: {page.text('#log-text')[:200]!r}")
    page.click("#log-pause")
    before = page.text("#log-text")
    serve.request("/v1/models?of=pause")
    serve.request("/unknown-path-of-the-test")
    held = page.wait(lambda: "wait" in page.text("#log-state"))
    checks.check(held and page.text("#log-text") == before, f"paused: {page.text('#log-state')}")
    page.click("#log-pause")
    checks.check(page.wait(lambda: "/unknown-path-of-the-test" in page.text("#log-text")), "what was held back comes")
    choose(page, "#log-source", "alpha")
    checks.check(page.wait(lambda: "server is listening" in page.text("#log-text")), "a model's log")
    polls = [line for line in serve.log().splitlines() if "GET /api/memory" in line]
    checks.check(not polls, f"the page's own looks are no lines of the log: {polls[:2]}")


def check_rows(page, serve):
    """More requests than the page keeps: the last ones, the latest end first, also for who comes later."""
    for i in range(60):
        serve.ask("/tokenize", {"model": "alpha", "content": f"word {i}"})
    wanted = [row["id"] for row in serve.ask("/api/activity?limit=50")["rows"]]
    shown = "return [...document.querySelectorAll('#request-rows tr')].map((one) => Number(one.dataset.id))"
    checks.check(page.wait(lambda: page.run(shown) == wanted), f"the last requests: {page.run(shown)[:8]}, not {wanted[:8]}")
    page.go(url(serve))
    checks.check(page.wait(lambda: page.run(shown) == wanted), f"and after loading: {page.run(shown)[:8]}")


FITS = "return [document.documentElement.scrollWidth, window.innerWidth]"
WIDE = """return [...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth
    && !one.closest('.scroll')).map((one) => one.outerHTML.slice(0, 60)).slice(0, 5)"""
SMALL = """return [...document.querySelectorAll('button, select, input, a, summary')].filter((one) => one.checkVisibility()
    && !one.closest('.unseen, .skip')).map((one) => [one.outerHTML.slice(0, 60), one.getBoundingClientRect()])
    .filter(([_, box]) => box.width > 0 && (box.width < 24 || box.height < 24)).map(([text, box]) => `${text}: ${box.width} x ${box.height}`)"""


def check_sizes(page):
    for width, scale, what in ((360, 2, "a phone"), (320, 2, "320 px"), (640, 2, "1280 px at 200 %"), (1280, 1, "a desktop"), (2200, 1, "a wide one")):
        page.resize(width, 800, scale)
        page.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        full, shown = page.run(FITS)
        checks.check(full <= shown, f"{what}: {full} px in {shown}: {page.run(WIDE)}")
        small = page.run(SMALL)
        checks.check(not small, f"{what}: too small to hit: {small}")
    page.resize(1280, 900)


# A machine with two cards, as the page is told of it: others take of one, and nobody knows of the other.
CARDS = """
const GiB = 2 ** 30, real = window.fetch;
const card = (name, more) => ({name, state: 'reported', total_bytes: 24 * GiB, free_bytes: 5 * GiB, limit_bytes: 22 * GiB, foreign_bytes: 9 * GiB,
  floor_bytes: GiB, excess_bytes: 8 * GiB, ceiling_bytes: 13 * GiB, trusted: true, watchdog: 'pressed', ...more});
window.fetch = async (path, options) => {
  if (path !== 'api/memory') return real(path, options);
  const told = await (await real(path, options)).json();
  told.pools.push(card('CUDA0', {}), card('CUDA1', {trusted: false, ceiling_bytes: null, ceiling_reason: 'a model is there and nobody says how much of it is its own', watchdog: 'quiet'}));
  Object.assign(told.models[1], {state: 'ready', reserved_bytes: {CUDA0: 10 * GiB, host: 2 ** 29}, measured_bytes: {CUDA0: 9 * GiB}});
  return new Response(JSON.stringify(told), {status: 200});
};
window.realFetch = real;
"""


def check_cards(page):
    """Each memory has its own part, with what others take of it in words."""
    page.run(CARDS)
    words = page.wait(lambda: page.run("return document.querySelectorAll('.pool').length === 3 && [...document.querySelectorAll('.pool')].map((one) => one.innerText)"))
    checks.check(words and "10.00 GiB of 13.00 GiB promised to models, 9.00 GiB used, 3.00 GiB left" in words[1], f"the first card: {words}")
    checks.check(words and "take 8.00 GiB more than at rest" in words[1] and "idle models go soon" in words[1], "what others take of it")
    checks.check(words and "not known: a model is there" in words[2] and "of 22.00 GiB" in words[2], f"the other: {words and words[2]}")
    drawn = page.run("return [...document.querySelectorAll('.pool')].map((one) => one.querySelectorAll('.stack .ceiling').length)")
    checks.check(drawn == [0, 1, 0], f"where a ceiling is drawn: {drawn}")
    for width in (360, 1280):
        page.resize(width, 800)
        page.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        full, shown = page.run(FITS)
        checks.check(full <= shown, f"cards at {width} px: {full} px")
    page.run("window.fetch = window.realFetch")
    page.wait(lambda: page.run("return document.querySelectorAll('.pool').length === 1"))


FOCUSABLE = """return [...document.querySelectorAll('a[href], button:not([disabled]), select, input, textarea, summary, [tabindex="0"]')]
    .filter((one) => one.checkVisibility()).map((one, i) => (one.dataset.test = i, one.outerHTML.slice(0, 80)))"""


def check_keyboard(page, serve):
    """Tab comes to everything, what has the focus shows it, Enter does what a click does, the first link skips."""
    page.go(url(serve))
    page.wait(lambda: page.text("#link") == "Live" and page.text("#model-list"))
    page.run("document.querySelector('#plan').scrollIntoView({behavior: 'instant'})")
    page.wait(lambda: page.text("#plan-tables"))
    page.wait(lambda: page.run("return !document.querySelector('#event-more').hidden"))  # the last thing that comes
    wanted = page.run(FOCUSABLE)
    page.run("window.scrollTo(0, 0); document.activeElement.blur()")
    reached, bare = set(), []
    for _ in range(len(wanted) + 5):
        page.press("Tab")
        at, outline = page.run("const e = document.activeElement; return [e.dataset.test, getComputedStyle(e).outlineStyle]")
        if at is None or int(at) in reached:
            break
        reached.add(int(at))
        if outline == "none":
            bare.append(wanted[int(at)])
    missed = [text for i, text in enumerate(wanted) if i not in reached]
    checks.check(not missed, f"the keyboard does not come to {missed}")
    checks.check(not bare, f"the focus cannot be seen on {bare}")
    page.run("document.querySelector(\"button[aria-label='Load beta']\").focus()")
    page.press("Enter")
    checks.check(page.wait(lambda: state(page, "beta") == "ready"), "Enter on a button loads a model")
    checks.check(page.run("return document.activeElement.getAttribute('aria-label')") == "Unload beta", "and the focus stays where it was")
    page.run("document.querySelector('.skip').focus()")
    page.press("Enter")
    checks.check(page.run("return document.activeElement.id") == "main", "the first link skips to the content")


CONTRAST = """
const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return text.startsWith('color(') ? [...n.slice(0, 3).map((x) => x * 255), n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1]; };
const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
const ground = (e) => { const chain = []; for (; e; e = e.parentElement) chain.unshift(parse(getComputedStyle(e).backgroundColor));
  return chain.reduce((under, top) => over(top, under), [255, 255, 255, 1]); };
const light = (c) => { const [r, g, b] = c.slice(0, 3).map((x) => { x /= 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const poor = []; let n = 0, least = 21;
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const e = node.parentElement;
  if (!node.data.trim() || !e.checkVisibility() || e.closest('.unseen, .skip, script, noscript')) continue;
  const style = getComputedStyle(e), under = ground(e);
  const colour = over(parse(e.closest('svg') ? style.fill : style.color), under);
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  const found = ratio(colour, under); n++; least = Math.min(least, found);
  if (found < (large ? 3 : 4.5)) poor.push(`${node.data.trim().slice(0, 40)}: ${found.toFixed(2)}`);
}
return [n, least, poor];
"""


def check_contrast(page):
    """Of all text that is seen, in both themes, as the system asks and as the switch says; something of each state stands."""
    page.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    page.run("for (const s of ['ready','failed','starting','stopping','refused','cancelled','waiting']) {"
             "const e = document.createElement('p'); e.className = 'chip'; e.dataset.state = s; e.textContent = s; document.querySelector('#happened').append(e); }")
    for system, chosen in (("light", ""), ("dark", ""), ("light", "dark"), ("dark", "light")):
        page.media(prefers_color_scheme=system)
        page.fill("#theme", chosen)
        n, least, poor = page.run(CONTRAST)
        checks.check(n > 80 and not poor, f"theme {system}/{chosen}: {n} texts, the least {least:.2f}: {poor[:8]}")
        dark = page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
        checks.check(dark == ((chosen or system) == "dark"), f"theme {system}/{chosen}: is it dark? {dark}")
    page.fill("#theme", "")
    page.media(prefers_color_scheme="light")


NAMELESS = ("button", "textbox", "searchbox", "combobox", "spinbutton", "link", "img", "image", "region", "table", "list")


def check_names(page):
    """The accessibility tree: landmarks, one first heading, a name for everything that can be used."""
    nodes = page.command("Accessibility.getFullAXTree")["nodes"]
    roles = {}
    for node in nodes:
        if not node["ignored"]:
            roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    for role in ("banner", "navigation", "main", "contentinfo"):
        checks.check(len(roles.get(role, [])) == 1, f"one {role}: {roles.get(role)}")
    for role in NAMELESS[:-2]:
        checks.check(all(name.strip() for name in roles.get(role, [])), f"{role} without a name: {roles.get(role)}")
    checks.check(page.run("return document.querySelectorAll('h1').length") == 1, "one first heading")


def check_quiet(page):
    """Nothing from anywhere else; nothing moves for who wants no motion."""
    foreign = page.run("return performance.getEntriesByType('resource').map((one) => one.name).filter((name) => !name.startsWith(location.origin + '/'))")
    checks.check(not foreign, f"asked of others: {foreign}")
    page.media(prefers_reduced_motion="reduce")
    checks.check(page.run("return getComputedStyle(document.documentElement).scrollBehavior") == "auto", "no smooth scrolling")
    moving = page.run("return document.getAnimations().length")
    checks.check(moving == 0, f"{moving} things move")
    page.media(prefers_reduced_motion="no-preference")


def check_key(page):
    """A key is asked for, refused, taken, forgotten; it is never in an address."""
    with router.Router(CONFIG + "api_keys: [sesame]\n") as serve:
        page.go(url(serve))
        checks.check(page.wait(lambda: page.text("#key-form")), "the page asks for a key")
        checks.check(page.wait(lambda: page.run("return document.activeElement.id") == "key-input"), "its field has the focus")
        page.type("#key-input", "open")
        page.press("Enter")
        checks.check(page.wait(lambda: "not accepted" in (page.text("#key-error") or "")), "a wrong one is refused")
        page.type("#key-input", "sesame")
        page.press("Enter")
        checks.check(page.wait(lambda: page.text("#link") == "Live" and state(page, "alpha") == "stopped"), f"the right one is taken: {page.text('#link')}")
        page.click("button[aria-label='Load alpha']")
        checks.check(page.wait(lambda: state(page, "alpha") == "ready"), "events come with the key")
        told = page.run("return JSON.stringify([location.href, performance.getEntriesByType('resource').map((one) => one.name), {...localStorage}, document.cookie])")
        checks.check("sesame" not in told, "the key is in no address, and not kept beyond the tab")
        page.go(url(serve))
        checks.check(page.wait(lambda: page.text("#link") == "Live"), "the tab keeps it")
        page.click("#forget")
        checks.check(page.wait(lambda: page.text("#key-form")), "until it is forgotten")
        checks.check(page.wait(lambda: page.run("return sessionStorage.length") == 0), "wholly")


def check_hang(page, serve):
    """A router that stands still, and goes on."""
    serve.process.send_signal(signal.SIGSTOP)
    try:
        checks.check(page.wait(lambda: page.text("#link") == "Not reachable"), f"a router that stands still: {page.text('#link')}")
    finally:
        serve.process.send_signal(signal.SIGCONT)
    checks.check(page.wait(lambda: page.text("#link") == "Live"), f"and goes on: {page.text('#link')}")
    page.complaints()


def check_restart(page):
    """The router goes: the page says so."""
    checks.check(page.wait(lambda: page.text("#link") == "Not reachable"), f"a router that is gone: {page.text('#link')}")


def main():
    harness.require(harness.SMOLLM2)
    browser.require()
    with browser.Browser() as page:
        page.resize(1280, 900)
        with router.Router(CONFIG) as serve:
            check_files(serve)
            check_begin(page, serve)
            check_swap(page, serve)
            check_chat(page, serve)
            check_odd(page)
            check_plan(page)
            check_logs(page, serve)
            check_chat_real(page)
            check_rows(page, serve)
            check_sizes(page)
            check_cards(page)
            check_contrast(page)
            check_names(page)
            check_quiet(page)
            check_keyboard(page, serve)
            complaints = page.complaints()
            checks.check(not complaints, f"the console is silent at the end: {complaints}")
            check_hang(page, serve)
        check_restart(page)
        page.complaints()
        check_key(page)
    print(f"{checks.passed} checks passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
