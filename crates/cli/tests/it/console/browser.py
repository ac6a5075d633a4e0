"""Drives the console in Chromium: tells each thing that it has met as a line of JSON, and fails at the first that is not so."""

import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from playwright.sync_api import expect, sync_playwright

RINGFENCE, CHROMIUM, BASE, PICTURES = sys.argv[1:]
APPROVE = re.compile("^Approve(A)?$")

asked, complaints = [], []


# Notes how each question ended, for it does not stay on show.
NOTE = """addEventListener("DOMContentLoaded", () => {
  window.ended = [];
  const note = () => {
    for (const card of document.querySelectorAll(".card[data-state=over]")) {
      const text = card.querySelector(".text").textContent + ": " + card.querySelector(".result")?.textContent;
      if (!window.ended.includes(text)) window.ended.push(text);
    }
  };
  new MutationObserver(note).observe(document.getElementById("cards"), { childList: true, subtree: true, attributes: true });
})"""

# Presses and clicks in the very moment in which a question appears.
HASTE = """() => new MutationObserver((_, observer) => {
  const card = document.querySelector(".card");
  if (!card) return;
  observer.disconnect();
  card.focus();
  card.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true }));
  card.querySelector("button.yes").click();
}).observe(document.getElementById("cards"), { childList: true })"""


def met(what):
    print(json.dumps({"met": what}), flush=True)


def please(what):
    print(json.dumps({"please": what}), flush=True)


def tool(command, **environment):
    """A command of an agent's, which waits for a person."""
    arguments = [RINGFENCE, "tool", "host_exec", json.dumps({"command": command}), "--json"]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **environment})


def link():
    """A link, which opens one browser."""
    return subprocess.check_output([RINGFENCE, "console"], text=True).strip()


def said(process):
    return json.loads(process.communicate(timeout=30)[0])


def watched(context):
    """A tab whose requests and complaints are recorded."""
    page = context.new_page()
    page.add_init_script(NOTE)
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append("dialog: " + dialog.message), dialog.dismiss()))
    return page


def live(page):
    expect(page.locator("#link")).to_have_text("Live")


def card(page, text):
    found = page.locator(".card", has=page.locator(".text", has_text=text))
    expect(found).to_be_visible()
    return found


def ended(page, text, how):
    page.wait_for_function("(text) => window.ended.includes(text)", arg=f"{text}: {how}", polling=50)


def ready(found):
    """A question that has been in sight for long enough."""
    button = found.get_by_role("button", name=APPROVE)
    expect(button).to_have_attribute("aria-disabled", "false")
    return button


def shut_out(browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto(BASE + "/#token=" + "0" * 64)
    expect(page.locator("#door")).to_be_visible()
    expect(page.locator("#door-why")).to_contain_text("not of the server")
    assert page.locator("#inside").is_hidden() and not context.cookies()
    page.goto(BASE + "/")
    expect(page.locator("#door")).to_be_visible()
    context.close()
    met("a wrong link shows the door")


def come_in(browser, context):
    page = watched(context)
    first = link()
    page.goto(first)
    live(page)
    assert page.url == BASE + "/", page.url
    (cookie,) = context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie
    expect(page.locator("#none")).to_be_visible()
    met("the link opens the page and leaves the address")
    again = browser.new_context()
    late = again.new_page()
    late.goto(first)
    expect(late.locator("#door-why")).to_contain_text("was used")
    assert not again.cookies()
    again.close()
    met("a link opens one browser")
    return page


def approve(page, other):
    page.evaluate("window.still = 'the same page'")
    page.evaluate(HASTE)
    process = tool("touch made-by-approval")
    found = card(page, "touch made-by-approval")
    assert page.evaluate("window.still") == "the same page"
    expect(page).to_have_title("(1) Ringfence")
    expect(found).to_contain_text("of 10")
    expect(found.locator(".left")).to_contain_text("left")
    met("a question appears without a reload")
    ready(found)
    assert process.poll() is None and not os.path.exists("made-by-approval")
    assert found.get_attribute("data-state") == "waiting"
    met("what is pressed as it appears approves nothing")
    card(other, "touch made-by-approval")
    page.keyboard.press("j")
    page.keyboard.press("a")
    assert said(process) == "" and os.path.exists("made-by-approval")
    ended(page, "touch made-by-approval", "Approved by console")
    expect(page.locator("#history > li").first).to_contain_text("Approved")
    expect(page.locator("#runs > li").first).to_contain_text("touch made-by-approval")
    expect(page).to_have_title("Ringfence")
    met("it is approved by keyboard and the call returns")
    ended(other, "touch made-by-approval", "Approved by console")
    expect(other).to_have_title("Ringfence")
    met("the other tab sees it")


def reject(page):
    process = tool("rm made-by-approval")
    found = card(page, "rm made-by-approval")
    found.get_by_role("button", name="Reject").click()
    assert said(process)["error"]["type"] == "rejected" and os.path.exists("made-by-approval")
    ended(page, "rm made-by-approval", "Rejected by console")
    met("a question is rejected and the call returns")


def expire(page):
    process = tool("rm -r made-by-approval", RINGFENCE_HOST_EXECUTION_ASK_TIMEOUT_MIN="2s")
    assert said(process)["error"]["type"] == "approval_timeout"
    ended(page, "rm -r made-by-approval", "Expired")
    met("a question expires")


def hostile(page):
    command = "rm '<img src=x onerror=alert(1)>' '<script>alert(2)</script>' \u202etxt.\u0430 </pre><b>"
    process = tool(command)
    found = card(page, "<img src=x onerror=alert(1)>")
    shown = found.locator(".text").inner_text()
    assert shown == command.replace("\u202e", "\\u{202e}"), shown
    assert found.locator(".text .escape").all_inner_texts() == ["\\u{202e}"]
    assert found.locator(".text .odd").all_inner_texts() == ["\u0430"]
    assert page.locator("main img, main script, .text b, main a").count() == 0
    met("what an agent wrote is text")
    return process, found


def tab_through(page, found):
    ready(found)
    wanted = found.get_by_role("button").all_inner_texts()
    page.locator("#waiting").focus()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        inside = "() => document.activeElement.closest('.card') && document.activeElement.innerText"
        text = page.evaluate(inside)
        if text:
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", outline
            reached.append(text)
    assert all(text in reached for text in wanted), (wanted, reached)
    met("every button is reached by tab")


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Another server of this machine, which keeps what it is sent."""

    sent = []

    def do_GET(self):
        self.sent.append(self.headers.get("Cookie", ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_):
        pass


def attack(context, identity):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    outcome = page.evaluate(
        """async ([base, id]) => {
          const attempt = (path, options) => fetch(base + path, { credentials: "include", ...options }).then((r) => r.type, (e) => e.name);
          const simple = { method: "POST", mode: "no-cors", body: '{"approved": true}' };
          return [
            await attempt("/api/approvals", {}),
            await attempt("/api/approvals", { headers: { "Ringfence-Key": "x" } }),
            await attempt("/api/approvals/" + id, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" }),
            await attempt("/api/approvals/" + id, simple),
            await attempt("/session", simple),
            await attempt("/", { mode: "no-cors" }),
          ];
        }""",
        [BASE, identity],
    )
    # What has no permission to be read is not handed over either: the policy for resources is `same-origin`.
    assert outcome[:3] == ["TypeError"] * 3 and "basic" not in outcome and "cors" not in outcome, outcome
    page.evaluate(
        """async (url) => {
          const form = document.createElement("form");
          Object.assign(form, { action: url, method: "post", enctype: "text/plain" });
          document.body.append(form);
          form.submit();
        }""",
        f"{BASE}/api/approvals/{identity}",
    )
    page.wait_for_url(f"{BASE}/**")
    assert "foreign_origin" in page.content(), page.content()
    page.close()
    met("another site reads and changes nothing")
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    before = len(complaints)
    with context.expect_page() as opened:
        page.evaluate("(url) => { window.open(url) }", BASE + "/#token=zzz")
    live(opened.value)
    assert opened.value.evaluate("fetch('/api/runs', { headers: { 'Ringfence-Key': localStorage.getItem('ringfence.key') } }).then((r) => r.status)") == 200
    opened.value.close()
    page.close()
    del complaints[before:]
    met("a link from another site closes no session")
    server.shutdown()
    (cookie,) = [cookie for cookie in Elsewhere.sent if cookie][:1]
    assert "ringfence_" in cookie, "a browser that binds cookies to ports: this check can go"
    try:
        urllib.request.urlopen(urllib.request.Request(BASE + "/api/approvals", headers={"Cookie": cookie}))
        raise AssertionError("a cookie alone opened the console")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error
    met("a cookie that another port was sent opens nothing")


# The least contrast of any text on the page, and which text that is.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const read = (color, over) => {
    canvas.fillStyle = over; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const css = (rgb) => `rgb(${rgb.join(" ")})`;
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let least = [99, ""];
  const walker = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest(".unseen, .skip")) continue;
    const line = [];
    for (let at = element; at; at = at.parentElement) line.unshift(at);
    let ground = [255, 255, 255];
    for (const at of line) ground = read(getComputedStyle(at).backgroundColor, css(ground));
    let opacity = 1;
    for (const at of line) opacity *= Number(getComputedStyle(at).opacity);
    const ink = read(getComputedStyle(element).color, css(ground)).map((v, at) => v * opacity + ground[at] * (1 - opacity));
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least[0]) least = [ratio, element.className + ": " + walker.currentNode.data];
  }
  return least;
}"""


def look(browser):
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
        page = watched(context)
        page.goto(link())
        live(page)
        for summary in ("#history summary", "#runs summary"):
            page.locator(summary).first.click()
        for found in page.locator(".card").all():
            ready(found)
        for width in (1280, 390, 360):
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{wide} pixels wide in a window of {width}"
            ratio, where = page.evaluate(CONTRAST)
            assert ratio >= 4.5, f"{scheme}: {ratio:.2f} for {where}"
            page.screenshot(path=f"{PICTURES}/console-{scheme}-{width}.png", full_page=True)
        context.close()
    met("everything can be read by day and by night")


def lose(page):
    """The engine ends, another begins."""
    before = len(complaints)
    please("stop")
    expect(page.locator("#link")).to_have_text("Connection lost, trying again")
    met("a lost connection is told")
    please("start")
    expect(page.locator("#door")).to_be_visible(timeout=30000)
    met("the next engine asks for the link")
    # The browser itself notes that nobody answered, and that the session is over.
    del complaints[before:]


def main():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        expect.set_options(timeout=20000)
        shut_out(browser)
        context = browser.new_context()
        page = come_in(browser, context)
        other = watched(context)
        other.goto(BASE + "/")
        live(other)
        page.bring_to_front()
        approve(page, other)
        reject(page)
        expire(page)
        process, found = hostile(page)
        tab_through(page, found)
        attack(context, found.get_attribute("data-id"))
        look(browser)
        found.get_by_role("button", name="Reject").click()
        assert said(process)["error"]["type"] == "rejected"
        other.close()
        lose(page)
        foreign = [url for url in asked if not url.startswith(BASE + "/")]
        assert not foreign and not complaints, (foreign, complaints)
        met("nothing came from elsewhere and nothing was complained about")
        browser.close()


main()
