/* A judged practice pair: the verdict is read first; Enter then goes on (keyboard.js). */
(() => {
  "use strict";
  document.addEventListener("DOMContentLoaded", () => document.querySelector(".verdict")?.focus({ preventScroll: true }));
})();
