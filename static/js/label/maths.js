/* Typesets formulas. The server leaves the source of each in an element of class `math`; KaTeX is
   fetched with the first one. A formula that KaTeX does not understand stays its source.

   KaTeX sets styles through the DOM, which the content security policy allows; the two commands
   whose MathML it writes with a style attribute get no MathML. Its error messages carry such an
   attribute too, so errors are caught here instead. */
(() => {
  const { katex: SCRIPT, katexStyle: STYLE } = document.currentScript.dataset;
  const LONGEST = 5000; // characters of one formula
  const SLICE = 30; // ms of work before the page gets a turn
  const STYLED = /\\(pmb|fcolorbox)/;
  const concord = (window.concord ??= {});
  let loading = null;

  // Links, images, classes, styles: KaTeX would show the command's name alone; its source says more.
  const untrusted = ({ command }) => {
    throw Object.assign(new Error(command), {
      rawMessage: interpolate(gettext("%(command)s does nothing here"), { command }, true),
    });
  };

  const fetched = (element) =>
    new Promise((resolve, reject) => {
      element.addEventListener("load", resolve);
      element.addEventListener("error", () => {
        element.remove();
        reject(new Error("not fetched"));
      });
      document.head.append(element);
    });
  const load = () => {
    loading ??= Promise.all([
      fetched(Object.assign(document.createElement("link"), { rel: "stylesheet", href: STYLE })),
      fetched(Object.assign(document.createElement("script"), { src: SCRIPT })),
    ]).catch((error) => {
      loading = null;
      throw error;
    });
    return loading;
  };

  // To the line breaker a formula is a box: keep the full stop after it on its line.
  const keepStop = (element) => {
    const after = element.nextSibling;
    const stop = after?.nodeType === Node.TEXT_NODE && /^[.,;:!?)\]»”’%]+/.exec(after.data);
    if (!stop) return;
    after.splitText(stop[0].length);
    const together = document.createElement("span");
    together.className = "unbroken";
    element.replaceWith(together);
    together.append(element, after);
  };

  const typeset = (element) => {
    const source = element.textContent;
    if (source.length > LONGEST) {
      element.classList.add("broken");
      return;
    }
    try {
      window.katex.render(source, element, {
        displayMode: element.classList.contains("display"),
        output: STYLED.test(source) ? "html" : "htmlAndMathml",
        throwOnError: true,
        trust: untrusted,
        strict: "ignore",
        maxExpand: 500,
        maxSize: 10,
      });
      element.dataset.source = source;
      element.classList.add("typeset");
      if (source.length < 40 && !element.matches(".display")) keepStop(element);
    } catch (error) {
      element.textContent = source;
      element.classList.add("broken");
      element.title = interpolate(
        gettext("Not typeset: %(why)s"),
        { why: error.rawMessage ?? gettext("too deeply nested") },
        true,
      );
    }
  };

  const waiting = () => document.querySelectorAll(".math:not(.typeset, .broken)");
  // What scrolls sideways must be reachable by keyboard; measured at once, since each measuring after
  // a change lays the page out again.
  const reachable = () => {
    const wide = [...document.querySelectorAll(".math.display.typeset")].filter(
      (one) => one.scrollWidth > one.clientWidth + 1,
    );
    for (const one of wide) one.tabIndex = 0;
  };
  const work = () => {
    const end = performance.now() + SLICE;
    for (const element of waiting()) {
      if (performance.now() > end) {
        setTimeout(work);
        return;
      }
      typeset(element);
    }
    setTimeout(reachable);
    document.dispatchEvent(new CustomEvent("label:typeset"));
  };
  const begin = () => {
    if (!waiting().length) return;
    if (window.katex)
      work(); // before the swapped pair is painted
    else load().then(work, () => {}); // offline: the source can be read
  };

  addEventListener("online", begin);
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("htmx:afterSwap", begin);
  concord.maths = { busy: () => waiting().length > 0 };
})();
