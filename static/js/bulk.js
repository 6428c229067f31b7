// Checks or unchecks all rows of the page; without script each is checked by itself.
(() => {
  const all = document.querySelector("[data-check-all]");
  if (!all) return;
  const words = document.querySelector("[data-check-all-words]");
  all.hidden = words.hidden = false;
  const boxes = [...document.querySelectorAll("[data-bulk] input[name=id]")];
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
  });
  document.addEventListener("change", () => {
    const n = boxes.filter((box) => box.checked).length;
    all.checked = n === boxes.length;
    all.indeterminate = n > 0 && n < boxes.length;
  });
})();
