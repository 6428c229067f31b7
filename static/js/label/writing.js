/* Writing a text: how long it is, a preview, Ctrl+Enter, and the draft saved on leaving. htmx saves
   it while one types. */
(() => {
  const form = document.querySelector("form[data-writing]");
  if (!form) return;
  const field = form.elements.body;
  const count = form.querySelector("[data-count]");
  const need = form.querySelector("[data-need]");
  const box = form.querySelector("[data-preview-box]");
  const shown = form.querySelector("[data-preview-text]");
  const least = Number(field.dataset.least);
  const most = Number(field.dataset.most);
  let stored = field.value;
  let sending = false;
  let later = 0;

  const token = () => form.elements.csrfmiddlewaretoken.value;

  const length = () => field.value.trim().length;

  const tell = () => {
    const n = length();
    count.textContent = interpolate(
      ngettext("%(n)s character;", "%(n)s characters;", n),
      { n: n.toLocaleString(document.documentElement.lang) },
      true,
    );
    if (!need.hidden && n >= least && n <= most) need.hidden = true;
  };

  const preview = async () => {
    if (!box.open) return;
    const answer = await fetch(form.dataset.preview, {
      method: "POST",
      headers: { "X-CSRFToken": token() },
      body: new URLSearchParams({ body: field.value }),
    });
    if (answer.ok) shown.innerHTML = await answer.text(); // sanitised on the server
  };

  field.addEventListener("input", () => {
    tell();
    clearTimeout(later);
    later = setTimeout(preview, 600);
  });
  box.addEventListener("toggle", preview);

  form.addEventListener("submit", (event) => {
    const passing = event.submitter?.name === "reason";
    const n = length();
    if (!passing && (n < least || n > most)) {
      event.preventDefault();
      need.textContent =
        n < least
          ? interpolate(gettext("At least %(n)s characters are needed."), { n: least }, true)
          : interpolate(gettext("At most %(n)s characters are possible."), { n: most }, true);
      need.hidden = false;
      field.focus();
      return;
    }
    if (sending) event.preventDefault();
    sending = true;
  });

  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey)) return;
    if (event.key === "Enter") {
      event.preventDefault();
      form.requestSubmit(form.querySelector("[data-submit]"));
    } else if (event.shiftKey && event.key.toLowerCase() === "p") {
      event.preventDefault();
      box.open = !box.open;
    }
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt === field && event.detail.successful) {
      const sent = event.detail.requestConfig?.parameters;
      stored = (sent?.get ? sent.get("body") : sent?.body) ?? stored;
    }
  });

  // The last words before the page goes, which the pause in typing has not sent yet.
  const leave = () => {
    if (sending || field.value === stored) return;
    stored = field.value;
    fetch(form.dataset.draft, { method: "POST", body: new FormData(form), keepalive: true }).catch(() => {});
  };
  addEventListener("pagehide", leave);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") leave();
  });
  addEventListener("pageshow", () => {
    sending = false;
  });
  tell();
})();
