/* Answers that could not be delivered. They wait in this browser, by person, and are sent again from
   whatever page of the site that person has open, until the server has stored or refused them. The
   key of an answer makes repeating it harmless: the server stores the same submit once.

   An answer is written here before it is first sent, so a closed tab loses none. `held` is the time
   until which the page that sends it is waiting for its answer itself. */
(() => {
  const WAITING = "concord.outbox.";
  const REFUSED = "concord.refused.";
  const DELIVERED = "concord.delivered."; // keys, the newest last: for pages that still show the pair
  const FIRST = 2_000;
  const LONGEST = 60_000;
  const TIMEOUT = 30_000;
  // Codes of refusals after which the pair is no longer this person's to answer.
  const OVER = ["lease_lost", "already_voted", "key_reused", "not_current"];
  const concord = (window.concord ??= {});
  const person = () => document.body.dataset.person;
  const memory = new Map(); // what a full or forbidden storage could not take
  let tries = 0;
  let timer = 0;
  let state = ""; // "" | offline | server | signed-out
  let sending = false;

  // --- the lists; where the storage is full or forbidden, this page alone remembers
  const failing = new Set();
  const read = (prefix) => {
    if (failing.has(prefix)) return memory.get(prefix) ?? [];
    try {
      return JSON.parse(localStorage.getItem(prefix + person())) ?? [];
    } catch {
      return [];
    }
  };
  const write = (prefix, list) => {
    memory.set(prefix, list);
    try {
      if (list.length) localStorage.setItem(prefix + person(), JSON.stringify(list));
      else localStorage.removeItem(prefix + person());
      failing.delete(prefix);
    } catch {
      failing.add(prefix);
    }
  };
  const items = () => read(WAITING);
  const change = (key, act) =>
    write(
      WAITING,
      items().flatMap((item) => (item.key === key ? act(item) : [item])),
    );

  const add = (item) => {
    write(WAITING, [...items().filter((other) => other.key !== item.key), item]);
    clearTimeout(timer);
    timer = setTimeout(deliver, TIMEOUT + 100);
    show();
  };
  // It is stored, or there is no point in sending it again. A page that waits for its answer itself
  // (`settle`) needs no event; `keep` leaves what was entered as a draft.
  const settle = (key, { keep = false } = {}) => {
    const item = items().find((one) => one.key === key);
    if (!item) return null;
    change(key, () => []);
    if (item.draft && !keep) localStorage.removeItem(item.draft);
    show();
    return item;
  };
  const stored = (key) => {
    write(DELIVERED, [...read(DELIVERED).filter((other) => other !== key), key].slice(-20));
    return settle(key);
  };
  // A page that was asked for while the answer was on its way, or another tab, shows what is answered.
  const catchUp = () => {
    const f = document.querySelector("form[data-answer-form]");
    const shown = f && [f.elements.key?.value, `skip.${f.elements.slot?.value}`];
    const key = shown && read(DELIVERED).find((one) => shown.includes(one));
    if (key) document.dispatchEvent(new CustomEvent("outbox:done", { detail: { key } }));
  };
  // Said even when another page has just taken it off the list: this one may still show the pair.
  const done = (key) => {
    stored(key);
    document.dispatchEvent(new CustomEvent("outbox:done", { detail: { key } }));
  };
  // `keep`: the pair is still theirs, so what was entered stays as a draft of it.
  const refuse = (key, message, { keep = false } = {}) => {
    const item = settle(key, { keep });
    if (!item) return;
    write(REFUSED, [...read(REFUSED), { at: item.at, message, text: keep ? "" : item.text }].slice(-20));
    show();
  };
  // The page that sent it has given up waiting: from now on it is ours.
  const release = (key, why) => {
    change(key, (item) => [{ ...item, held: 0 }]);
    state = why;
    if (why === "retry") deliver();
    else later();
    show();
  };

  // --- sending
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(deliver, Math.min(LONGEST, FIRST * 2 ** tries++));
  };
  const ask = (url, options = {}) =>
    fetch(url, { ...options, signal: AbortSignal.timeout(TIMEOUT), redirect: "manual" });

  const send = async (item) => {
    const who = await ask(item.who, { headers: { Accept: "application/json" } });
    if (!who.ok) throw new Error("server");
    const me = await who.json();
    if (me.person === null) throw new Error("signed-out");
    if (String(me.person) !== person()) throw new Error("other");
    const answer = await ask(item.url, {
      method: "POST",
      body: new URLSearchParams(item.body),
      headers: { "X-CSRFToken": me.csrf, "HX-Request": "true", "HX-Current-URL": location.href },
    });
    if (answer.headers.get("Concord-Stored")) {
      done(item.key);
      return;
    }
    if (answer.type === "opaqueredirect") throw new Error("signed-out");
    if (answer.status >= 500 || answer.status === 429 || answer.status === 408) throw new Error("server");
    if (answer.headers.get("HX-Redirect")) throw new Error("signed-out");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const said = page.querySelector("#pair .note")?.textContent.trim();
    const gone = gettext("You no longer label in this project, so this answer was not counted.");
    const final =
      !answer.headers.get("Concord-Refused") || OVER.includes(answer.headers.get("Concord-Refused"));
    const why =
      answer.status === 403 || answer.status === 404
        ? gone
        : gettext("The server did not accept it; nothing was counted.");
    refuse(item.key, said || why, { keep: !final });
    document.dispatchEvent(new CustomEvent("outbox:done", { detail: { key: item.key } }));
  };

  const round = async () => {
    for (const item of items()) {
      if (item.held > Date.now()) continue;
      try {
        await send(item);
        tries = 0;
        state = "";
      } catch (error) {
        state = ["server", "signed-out", "other"].includes(error.message) ? error.message : "offline";
        break;
      }
    }
  };

  const deliver = async () => {
    clearTimeout(timer);
    if (!person() || sending || !items().length) return;
    sending = true;
    try {
      // One tab at a time; sending twice would be harmless and useless.
      if (navigator.locks) await navigator.locks.request("concord.outbox", round);
      else await round();
    } finally {
      sending = false;
    }
    show();
    const rest = items();
    if (!rest.length || state === "other") return;
    const next = Math.min(...rest.map((item) => item.held || 0)) - Date.now();
    if (next > 0) timer = setTimeout(deliver, next + 50);
    else later();
  };

  // --- what the person sees: how many wait and why, what was refused
  // In the bar of the label screen, where it is always in sight; elsewhere above the page.
  const place = () => {
    const found = [...document.querySelectorAll("[data-outbox]")];
    const inBar = found.find((one) => one.closest("form[data-answer-form]"));
    if (inBar || found.length) {
      found.filter((one) => inBar && one !== inBar).forEach((one) => one.remove());
      return inBar ?? found[0];
    }
    const box = document.createElement("div");
    box.dataset.outbox = "";
    document.querySelector("main")?.prepend(box);
    return box;
  };
  const note = (tone, text) => {
    const box = document.createElement("div");
    box.className = `note ${tone}`;
    box.setAttribute("role", "status");
    const words = document.createElement("div");
    words.className = "row";
    const sentence = document.createElement("span");
    sentence.textContent = text;
    words.append(sentence);
    box.append(words);
    return [box, words];
  };
  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "button small";
    made.textContent = text;
    made.addEventListener("click", act);
    return made;
  };

  let said = "";
  const show = () => {
    const waiting = items().filter((item) => !(item.held > Date.now()));
    const refused = read(REFUSED);
    if (!waiting.length && !refused.length && !document.querySelector("[data-outbox]")) return;
    const box = place();
    box.replaceChildren();
    let words = "";
    if (waiting.length) {
      const n = waiting.length;
      const kept = failing.has(WAITING)
        ? ngettext(
            "%(n)s answer is kept on this page only (do not close it).",
            "%(n)s answers are kept on this page only (do not close it).",
            n,
          )
        : ngettext("%(n)s answer is kept in this browser.", "%(n)s answers are kept in this browser.", n);
      const why = {
        "signed-out": gettext("You were signed out. %(kept)s Sign in again to deliver."),
        other: gettext("%(kept)s Another person gave it and has to sign in here to deliver."),
        server: gettext("Not stored yet: the server has a problem. %(kept)s It is sent again by itself."),
      };
      const offline = gettext(
        "Not delivered yet: the server cannot be reached. %(kept)s It is sent again by itself.",
      );
      words = interpolate(why[state] ?? offline, { kept: interpolate(kept, { n }, true) }, true);
      const [line, row] = note("warn", words);
      line.dataset.undelivered = state;
      line.dataset.kept = failing.has(WAITING) ? "page" : "browser";
      if (state === "signed-out") {
        const link = document.createElement("a");
        link.className = "button small primary";
        link.href = `${document.body.dataset.signIn}?next=${encodeURIComponent(location.pathname + location.search)}`;
        link.textContent = gettext("Sign in");
        row.append(link);
      } else
        row.append(
          button(gettext("Send now"), () => {
            tries = 0;
            deliver();
          }),
        );
      box.append(line);
    }
    refused.forEach((item, index) => {
      const [line, row] = note(
        "bad",
        interpolate(
          gettext("%(message)s You gave it at %(time)s."),
          { message: item.message, time: new Date(item.at).toLocaleTimeString([], { timeStyle: "short" }) },
          true,
        ),
      );
      line.dataset.refused = "";
      if (item.text) {
        const copy = button(gettext("Copy what you wrote"), () => {});
        copy.dataset.copy = item.text;
        row.append(copy);
      }
      row.append(
        button(gettext("Dismiss"), () => {
          write(
            REFUSED,
            read(REFUSED).filter((_, i) => i !== index),
          );
          show();
        }),
      );
      box.append(line);
    });
    if (words !== said) {
      said = words;
      const region = document.getElementById("announce");
      if (region && words) region.textContent = words;
    }
  };

  addEventListener("online", () => {
    tries = 0;
    deliver();
  });
  addEventListener("storage", (event) => {
    if (event.key?.startsWith(WAITING) || event.key?.startsWith(REFUSED)) show();
    if (event.key === DELIVERED + person()) catchUp();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") deliver();
  });
  document.addEventListener("label:shown", () => {
    if (person()) show();
  });
  document.addEventListener("DOMContentLoaded", () => {
    if (person()) {
      show();
      catchUp();
      deliver();
    }
  });

  concord.outbox = { add, deliver, settle, stored, refuse, release, items, holds: TIMEOUT };
})();
