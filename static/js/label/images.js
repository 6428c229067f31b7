/* Images in texts are enlarged in a dialog: by a press, by Enter on the image, or by M. In it + and −
   change the size, 0 shows all of it, the arrows move it, Escape closes it. */
(() => {
  const concord = (window.concord ??= {});
  const STEP = 1.25;
  const MOVE = 80; // px
  let scale = 1;

  const dialog = () => {
    const known = document.querySelector("dialog.enlarged");
    if (known) return known;
    const made = document.createElement("dialog");
    made.className = "enlarged";
    made.innerHTML =
      '<div class="sheet" tabindex="0"><img alt=""></div><div class="tools"><button class="button small" type="button" data-size="out">−</button><button class="button small" type="button" data-size="in">+</button><button class="button small" type="button" data-size="all">0</button><button class="button small" type="button" data-size="close"></button></div>';
    const words = {
      out: gettext("Smaller"),
      in: gettext("Larger"),
      all: gettext("All of it"),
      close: gettext("Close"),
    };
    for (const [name, text] of Object.entries(words))
      made.querySelector(`[data-size=${name}]`).setAttribute("aria-label", text);
    made.querySelector("[data-size=close]").textContent = words.close;
    document.body.append(made);
    return made;
  };

  const fit = (box, image) =>
    Math.min(1, box.clientWidth / image.naturalWidth, box.clientHeight / image.naturalHeight);
  const show = (to) => {
    const box = dialog().querySelector(".sheet");
    const image = box.querySelector("img");
    if (!image.naturalWidth) return;
    scale = Math.min(8, Math.max(0.05, to));
    image.width = Math.round(image.naturalWidth * scale);
  };
  const all = () => {
    const box = dialog().querySelector(".sheet");
    show(fit(box, box.querySelector("img")));
  };
  const sized = {
    in: () => show(scale * STEP),
    out: () => show(scale / STEP),
    all,
    close: () => dialog().close(),
  };

  const enlarge = (source) => {
    if (!source) return;
    const made = dialog();
    const image = made.querySelector("img");
    image.onload = all;
    image.src = source.currentSrc || source.src;
    image.alt = source.alt;
    made.setAttribute("aria-label", source.alt || gettext("Image"));
    if (!made.open) made.showModal();
    made.querySelector(".sheet").focus();
    if (image.complete) all();
  };

  const begin = () => {
    for (const image of document.querySelectorAll(".prose img")) {
      image.tabIndex = 0;
      image.setAttribute("role", "button");
    }
  };

  document.addEventListener("click", (event) => {
    const image = event.target.closest?.(".prose img");
    if (image) enlarge(image);
    const tool = event.target.closest?.("[data-size]");
    if (tool) sized[tool.dataset.size]?.();
  });
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.key === "Enter" && event.target.matches?.(".prose img")) {
        event.preventDefault();
        event.stopPropagation();
        enlarge(event.target);
        return;
      }
      const open = document.querySelector("dialog.enlarged[open]");
      if (!open || event.ctrlKey || event.metaKey || event.altKey) return;
      const keys = { "+": "in", "=": "in", "-": "out", 0: "all" };
      const moves = {
        ArrowLeft: [-MOVE, 0],
        ArrowRight: [MOVE, 0],
        ArrowUp: [0, -MOVE],
        ArrowDown: [0, MOVE],
      };
      if (keys[event.key]) sized[keys[event.key]]();
      else if (moves[event.key]) open.querySelector(".sheet").scrollBy(...moves[event.key]);
      else return;
      event.preventDefault();
      event.stopPropagation();
    },
    true,
  );
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("label:shown", begin);
  document.addEventListener("htmx:afterSwap", begin);

  // The image in hand, or the first one that is on the screen.
  const first = () =>
    document.activeElement?.matches?.(".prose img")
      ? document.activeElement
      : [...document.querySelectorAll(".pane .prose img, .prose img")].find((one) => one.offsetParent);
  concord.images = { enlarge: () => enlarge(first()) };
})();
