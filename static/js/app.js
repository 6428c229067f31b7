// What every page can do: theme, dialogs, copying, the shortcuts list, quiet conveniences.
// No framework: elements say what they want with data attributes, one listener per kind serves all.
(() => {
  // --- words: the catalogue of a translated page, loaded before this, else English as written
  window.gettext ??= (text) => text;
  window.ngettext ??= (one, many, n) => (n === 1 ? one : many);
  window.interpolate ??= (text, values) => text.replace(/%\((\w+)\)s/g, (_, name) => String(values[name]));

  // --- the time zone, in which the next page shows its times
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const safe = location.protocol === "https:"; // then no other host may set it
  const zoned = `${safe ? "__Host-" : ""}concord_zone=${encodeURIComponent(zone)}`;
  if (zone && !document.cookie.split("; ").includes(zoned)) {
    // biome-ignore lint/suspicious/noDocumentCookie: the CookieStore API is missing in Firefox
    document.cookie = `${zoned}; Path=/; Max-Age=31536000; SameSite=Lax${safe ? "; Secure" : ""}`;
  }

  // --- theme: system → light → dark; kept with the person, so it is right before any script runs
  const words = { system: gettext("system"), light: gettext("light"), dark: gettext("dark") };
  const order = Object.keys(words);
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-theme-form]")) return;
    event.preventDefault();
    const root = document.documentElement;
    const next = order[(order.indexOf(root.dataset.theme) + 1) % order.length];
    root.dataset.theme = next;
    form.querySelector("[name=theme]").value = order[(order.indexOf(next) + 1) % order.length];
    form.querySelectorAll("[data-theme-icon]").forEach((icon) => {
      icon.toggleAttribute("hidden", icon.dataset.themeIcon !== next);
    });
    const word = form.querySelector("[data-theme-word]");
    if (word) word.textContent = interpolate(gettext("Theme: %(theme)s"), { theme: words[next] }, true);
    document.dispatchEvent(new CustomEvent("themechange"));
    const body = new FormData(form);
    body.set("theme", next);
    fetch(form.action, { method: "POST", body, headers: { "HX-Request": "true" } });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    document.dispatchEvent(new CustomEvent("themechange")),
  );

  // --- on a phone the bar below may be wider than the screen: show where one is
  document.addEventListener("DOMContentLoaded", () => {
    const bar = document.querySelector(".rail nav");
    const here = bar?.querySelector("[aria-current=page]");
    if (here && bar.scrollWidth > bar.clientWidth) {
      bar.scrollLeft = here.offsetLeft + here.offsetWidth / 2 - bar.clientWidth / 2;
    }
  });

  // --- dialogs: <button data-dialog="id"> opens, <button data-close> and a click outside close;
  // one with data-beside stands beside the page where there is room, and the button closes it again
  const room = matchMedia("(min-width: 62rem) and (min-height: 37.51rem)");
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener) {
      const dialog = document.getElementById(opener.dataset.dialog);
      if (!dialog) return;
      event.preventDefault();
      if (dialog.open) dialog.close();
      else if ("beside" in dialog.dataset && room.matches) dialog.show();
      else dialog.showModal();
      return;
    }
    const closer = event.target.closest("[data-close]");
    if (closer) closer.closest("dialog")?.close();
    if (event.target.matches("dialog:modal")) {
      const box = event.target.getBoundingClientRect();
      const inside =
        event.clientX >= box.left &&
        event.clientX <= box.right &&
        event.clientY >= box.top &&
        event.clientY <= box.bottom;
      if (!inside) event.target.close();
    }
  });

  // --- menus (<details class="menu">) close when the attention goes elsewhere
  document.addEventListener("click", (event) => {
    document.querySelectorAll("details.menu[open]").forEach((menu) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    document.querySelectorAll("details.menu[open]").forEach((menu) => {
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  });

  // --- copying: <button data-copy="text">
  const say = (text) => {
    const region = document.getElementById("announce");
    if (region) region.textContent = text;
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.classList.add("copied");
      say(gettext("Copied"));
      const title = button.title;
      button.title = gettext("Copied");
      setTimeout(() => {
        button.title = title;
        button.classList.remove("copied");
      }, 1500);
    } catch {
      say(gettext("Copying is not allowed here; select the text instead"));
    }
  });

  // --- `?` lists the page's shortcuts, `/` goes to its search; never while someone types
  const typing = (target) => target.closest?.("input, textarea, select, [contenteditable=true]");
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target))
      return;
    if (event.key === "?") {
      const dialog = document.getElementById("shortcuts");
      if (dialog) {
        event.preventDefault();
        if (dialog.open) dialog.close();
        else dialog.showModal();
      }
    } else if (event.key === "/" && !document.querySelector("dialog:modal")) {
      const search = document.querySelector("input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
        search.select();
      }
    }
  });

  // --- filters that apply themselves: <form data-auto-submit>; without script their button does
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-auto-submit]");
    if (form && event.target.matches("select, input[type=checkbox], input[type=radio]")) form.requestSubmit();
  });

  // --- a form is sent once, however often it is clicked
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("form[data-once]") || event.defaultPrevented) return;
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "1";
    form
      .querySelectorAll("button[type=submit], button:not([type])")
      .forEach((b) => b.setAttribute("aria-disabled", "true"));
  });
  addEventListener("pageshow", () => {
    document.querySelectorAll("form[data-sent]").forEach((form) => {
      delete form.dataset.sent;
      form.querySelectorAll("[aria-disabled]").forEach((b) => b.removeAttribute("aria-disabled"));
    });
  });

  // --- title and favicon show the state of a job: an element with data-page-title / data-page-icon
  const reflect = () => {
    const source = document.querySelector("[data-page-title]");
    if (!source) return;
    document.title = source.dataset.pageTitle;
    const icon = document.getElementById("favicon");
    if (icon && source.dataset.pageIcon && icon.getAttribute("href") !== source.dataset.pageIcon) {
      icon.setAttribute("href", source.dataset.pageIcon);
    }
  };
  document.addEventListener("DOMContentLoaded", reflect);
  document.addEventListener("htmx:afterSettle", reflect);

  // --- a request that fails says so instead of doing nothing
  document.addEventListener("htmx:sendError", () =>
    say(gettext("The server cannot be reached; this page shows its last state")),
  );
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 403 || event.detail.xhr.status === 401)
      say(gettext("You may not do this, or you were signed out; reload the page"));
  });
})();
