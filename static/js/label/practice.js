/* A judged practice pair: the verdict is read first; Enter then continues (keyboard.js). */
(() => {
  document.addEventListener("DOMContentLoaded", () =>
    document.querySelector(".verdict")?.focus({ preventScroll: true }),
  );
})();
