/* The keys of the label screen: each is printed on its button, none works while someone types, and
   all can be switched off in the list of shortcuts (WCAG 2.1.4). Letters go by what they are on the
   keyboard's own layout, digits by their place, so that French keyboards need no Shift. */
(() => {
  const OFF = "concord.label.single-keys-off";
  const concord = (window.concord ??= {});

  const typing = (target) =>
    target.closest?.(
      "textarea, select, [contenteditable=true], input:not([type=checkbox], [type=radio], [type=button])",
    );
  const menu = (name) => document.querySelector(`[data-extra="${name}"]`);
  const click = (selector) => document.querySelector(selector)?.click();
  const home = () => document.getElementById("pair-title")?.focus({ preventScroll: true });

  const openMenu = (details, focus) => {
    document.querySelectorAll("[data-extra][open]").forEach((other) => {
      if (other !== details) other.open = false;
    });
    details.open = !details.open;
    if (details.open) details.querySelector(focus)?.focus();
    else details.querySelector("summary").focus();
  };

  // "1" for the key 1 on any layout, "!" for it with Shift, else what the key says.
  const keyOf = (event) => {
    const digit =
      /^Digit(\d)$/.exec(event.code)?.[1] ?? (/^\d$/.test(event.key) && !event.shiftKey ? event.key : null);
    if (digit === null) return event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!event.shiftKey) return digit;
    return { 1: "!", 2: "@" }[digit] ?? event.key;
  };

  const choiceFor = (event, key) => {
    if (event.shiftKey && key !== "!" && key !== "@") return null;
    // arrows scroll what can be scrolled sideways, when the focus is in it
    if (key.startsWith("Arrow") && event.target.closest?.("pre, .scroll")) return null;
    return [...document.querySelectorAll(".choice[data-keys]")].find((button) =>
      button.dataset.keys.split(" ").includes(key),
    );
  };

  // In a criterion's row the keys of the choices judge the row, and the next row comes.
  const judge = (row, key) => {
    const words =
      "yesNo" in row.dataset
        ? { y: "yes", n: "no", u: "unsure" }
        : { 1: "left", a: "left", 2: "right", b: "right", 0: "tie", t: "tie" };
    const value = words[key];
    const clear = ["Backspace", "Delete"].includes(key) && !("required" in row.dataset);
    if (!value && !clear) return false;
    const radio = row.querySelector(clear ? "input:checked" : `input[value=${value}]`);
    if (radio) {
      radio.checked = !clear;
      radio.dispatchEvent(new Event("change", { bubbles: true }));
    }
    if (clear) return true;
    const rows = [...document.querySelectorAll("[data-criterion]")];
    const next = rows.slice(rows.indexOf(row) + 1).find((one) => !one.querySelector(":checked"));
    if (next) next.querySelector("input").focus();
    else concord.answer.forward(row.closest("form"));
    return true;
  };

  const actions = {
    s: () => menu("skip") && openMenu(menu("skip"), "[data-digit]"),
    c: () => document.querySelector("[data-criterion] input:checked, [data-criterion] input")?.focus(),
    r: () => {
      const why = document.querySelector("[data-why]");
      if (why) why.querySelector("input, textarea").focus();
      else if (menu("note")) openMenu(menu("note"), "textarea");
    },
    f: () => menu("note") && openMenu(menu("note"), "input[name=flags]"),
    i: () => concord.improve?.open(),
    q: () => menu("ask") && openMenu(menu("ask"), "textarea"),
    z: () => click("[data-undo]"),
    g: () => click("[data-dialog=guidelines]"),
    d: () => click("[data-toggle=diff]"),
    w: () => click("[data-toggle=raw]"),
    l: () => click("[data-toggle=linked]"),
    o: () => {
      const cover = document.querySelector("[data-cover]");
      if (cover) cover.open = !cover.open;
    },
    j: () => concord.runs?.go(1),
    k: () => concord.runs?.go(-1),
    v: () => concord.runs?.open(),
    e: () => concord.runs?.wrong(),
    m: () => concord.images?.enlarge(),
    y: () => document.querySelector("[data-yes-no] input:checked, [data-yes-no] input")?.focus(),
    p: () => {
      const prompt = document.querySelector("[data-prompt]");
      if (prompt) prompt.open = !prompt.open;
    },
  };

  const leave = (event) => {
    const inside = event.target.closest?.("form[data-answer-form] .asks, [data-improve]");
    if (document.querySelector("dialog:modal, details.menu[open]")) return;
    const beside = document.querySelector("dialog[data-beside][open]");
    if (beside && !inside) {
      beside.close();
      home();
    } else if (inside) {
      event.preventDefault();
      home();
    } else click("[data-keep]");
  };

  // Pages that show a pair without its answer form (practice) have the choices alone.
  const answer = () => (document.querySelector("form[data-answer-form]") ? concord.answer : null);
  const choose = (button) => (answer() ? answer().choose(button) : button.click());
  const submit = () => (answer() ? answer().submit() : click("[data-go-on]"));

  const enter = (event) => {
    const target = event.target;
    const fast = event.ctrlKey || event.metaKey;
    if (!target.closest?.("#pair, body")) return;
    if (fast && target.closest?.("form[data-answer-form]")) {
      event.preventDefault();
      submit();
      return;
    }
    const message = fast && target.closest?.("form[data-message]");
    if (message) {
      event.preventDefault();
      if (!event.repeat) message.requestSubmit();
      return;
    }
    if (fast || event.shiftKey || target.matches?.("button, a, summary, textarea, select")) return;
    if (target !== document.body && !target.closest?.("#pair form")) return;
    event.preventDefault();
    if (!event.repeat) submit();
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.isComposing) return;
    if (event.key === "Escape") {
      leave(event);
      return;
    }
    if (document.querySelector("dialog:modal")) return;
    if (event.key === "Enter") {
      enter(event);
      return;
    }
    if (event.ctrlKey || event.metaKey) return;
    if (event.repeat || typing(event.target) || localStorage.getItem(OFF) === "1") return;

    const key = keyOf(event);
    const handled = () => event.preventDefault();
    const skipping = menu("skip")?.open;
    const within = skipping ? menu("skip") : event.target.closest?.("[data-why]");
    const digit = within?.querySelector(`[data-digit="${key}"]`);
    if (digit) {
      handled();
      digit.focus();
      digit.click();
      return;
    }
    if (skipping && event.key.startsWith("Arrow")) return;
    const row = event.target.closest?.("[data-criterion]");
    if (row && (key.startsWith("Arrow") || judge(row, key))) {
      if (!key.startsWith("Arrow")) handled();
      return;
    }
    if (!event.shiftKey && actions[key]) {
      handled();
      actions[key]();
      return;
    }
    if (skipping) return;
    const button = choiceFor(event, key);
    if (button) {
      handled();
      choose(button);
    }
  });

  document.addEventListener("DOMContentLoaded", () => {
    const box = document.querySelector("[data-single-keys]");
    if (!box) return;
    box.checked = localStorage.getItem(OFF) !== "1";
    box.addEventListener("change", () => localStorage.setItem(OFF, box.checked ? "0" : "1"));
  });
})();

/* A judged practice pair: the verdict is read first; Enter then continues (keyboard.js). */
(() => {
  document.addEventListener("DOMContentLoaded", () =>
    document.querySelector(".verdict")?.focus({ preventScroll: true }),
  );
})();
