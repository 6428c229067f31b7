/* How long a pair was looked at, and how long it is still held.
   wall: since it appeared. active: the same without pauses of a minute or more and without the time
   the page was hidden. Both go with the answer; the server bounds them. */
(() => {
  const IDLE = 60_000;
  const WARN_BEFORE = 120_000;
  let shownAt = 0;
  let seenAt = 0;
  let active = 0;
  let form = null;
  let leasedUntil = 0;
  let leasedFor = 0;
  let held = 0;

  const now = () => performance.now();

  const begin = () => {
    form = document.querySelector("form[data-answer-form]");
    shownAt = seenAt = now();
    active = 0;
    const until = form?.dataset.leasedUntil;
    leasedUntil = until ? Date.parse(until) : 0;
    leasedFor = leasedUntil - Date.now();
    held = Date.now();
  };

  const notice = () => {
    const at = now();
    if (document.visibilityState === "visible" && at - seenAt < IDLE) active += at - seenAt;
    seenAt = at;
  };

  const stamp = () => {
    if (!form) return;
    notice();
    form.elements.active_ms.value = Math.round(active);
    form.elements.wall_ms.value = Math.round(now() - shownAt);
  };

  // The annotator is here and reading: hold the pair well before the lease runs out.
  const hold = async () => {
    if (!form?.dataset.hold || Date.now() - held < leasedFor / 2 || now() - seenAt > IDLE) return;
    held = Date.now();
    const mine = form;
    try {
      const answer = await fetch(mine.dataset.hold, {
        method: "POST",
        headers: { "X-CSRFToken": mine.elements.csrfmiddlewaretoken.value },
      });
      const got = await answer.json();
      if (mine === form && String(got.slot) === mine.elements.slot.value)
        leasedUntil = Date.parse(got.leased_until);
    } catch {
      /* offline: the countdown tells */
    }
  };

  const tick = () => {
    const place = form?.querySelector("[data-lease]");
    if (!place || !leasedUntil) return;
    const left = leasedUntil - Date.now();
    place.hidden = left > WARN_BEFORE;
    if (!place.hidden) {
      const seconds = Math.max(0, Math.ceil(left / 1000));
      const time = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
      place.querySelector("span").textContent = seconds
        ? interpolate(gettext("reserved for you for %(time)s more"), { time }, true)
        : gettext("time is up; your answer still counts unless someone else took the pair");
    }
    hold();
  };

  for (const name of ["pointermove", "pointerdown", "keydown", "wheel", "touchmove", "scroll"]) {
    document.addEventListener(name, notice, { passive: true, capture: true });
  }
  document.addEventListener("visibilitychange", () => {
    seenAt = now();
  });
  // Before htmx reads the form, and before a plain submit does.
  document.addEventListener(
    "click",
    (event) => {
      if (event.target.closest("form[data-answer-form] button")) stamp();
    },
    true,
  );
  document.addEventListener("submit", stamp, true);
  document.addEventListener("htmx:configRequest", (event) => {
    if (
      event.detail.elt.closest?.("form[data-answer-form]") &&
      form &&
      event.detail.parameters.has?.("active_ms")
    ) {
      stamp();
      event.detail.parameters.set("active_ms", form.elements.active_ms.value);
      event.detail.parameters.set("wall_ms", form.elements.wall_ms.value);
    }
  });
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("label:shown", begin);
  setInterval(tick, 1000);
})();
