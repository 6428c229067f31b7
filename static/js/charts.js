// The charts of a page: of one run with others behind it, or of several side by side. Shared cursor
// and zoom (kept when new points arrive); what is folded away is neither fetched nor drawn; while a
// run lives it is asked for news.
(() => {
  const root = document.getElementById("charts");
  if (!root || !window.uPlot) return;
  const { Source, Plot, figures } = window.concord;
  const POLL_MS = 2000;
  const CLOSER_MS = 250;
  const filter = document.getElementById("chart-filter");
  const smooth = document.getElementById("chart-smooth");
  const status = document.getElementById("chart-status");
  const panels = [...root.querySelectorAll("[data-panel]")].map((node) => ({
    node,
    key: node.dataset.panel,
    leading: node.querySelector("[data-leading]"),
    fold: node.querySelector("details"),
    rest: node.querySelector("[data-rest]"),
    count: node.querySelector("[data-count]"),
  }));
  const plots = new Map(); // a chart's key → Plot

  const page = {
    sources: JSON.parse(document.getElementById("chart-sources").textContent).map((one) => new Source(one)),
    inks: figures.inks(root),
    weight: 0,
    zoom: null, // {min, max} of the steps shown, or null for the whole run
    step: root.dataset.step ? Number(root.dataset.step) : null, // that the address points at
    spreading: false, // one chart's zoom is being given to the others
    bands: {},
    band: (name) => page.bands[name] ?? null,
    whole: () => {
      let from = Infinity,
        to = -Infinity;
      for (const { series } of page.sources)
        for (const { steps } of series.values())
          if (steps.length) {
            from = Math.min(from, steps[0]);
            to = Math.max(to, steps[steps.length - 1]);
          }
      return from <= to ? [from, to] : [0, 1];
    },
    onZoom: (min, max) => {
      if (max > min) {
        page.zoom = { min, max };
        later(spread);
        look();
      }
    },
    onWhole: () => {
      page.zoom = null;
      later(spread);
      look();
    },
  };
  // Only what is on the screen is drawn: a hundred charts zoom as quickly as four.
  const views = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries)
        [...plots.values()].find(({ figure }) => figure === target)?.seen(isIntersecting);
    },
    { rootMargin: "100px" },
  );
  const main = page.sources.filter(({ role }) => role !== "reference");

  // --- which charts there are, and which are shown ---

  const charts = () => {
    const found = new Map();
    for (const source of main)
      for (const chart of source.charts) {
        // Lines of several runs in several colours each cannot be told apart: one chart a metric.
        const alone = main.length > 1 && chart.names.length > 1;
        const parts = alone
          ? chart.names
              .map((name, i) => ({
                ...chart,
                key: name,
                title: `${chart.title}: ${chart.labels[i]}`,
                about: "",
                names: [name],
                labels: [name],
              }))
              .filter(({ key }) => !key.endsWith("/reference"))
          : [chart];
        for (const part of parts) {
          const known = found.get(part.key);
          if (!known) found.set(part.key, part);
          else if (part.names.length > known.names.length) found.set(part.key, part);
        }
      }
    return [...found.values()];
  };
  const matches = (chart) => {
    const wanted = filter.value.trim().toLowerCase();
    const text = `${chart.title} ${chart.names.join(" ")}`.toLowerCase();
    return !wanted || wanted.split(/\s+/).some((word) => text.includes(word));
  };
  const shown = () => {
    const searching = Boolean(filter.value.trim());
    return charts().filter(
      (chart) =>
        matches(chart) &&
        (searching || chart.leads || panels.find(({ key }) => key === chart.panel)?.fold.open),
    );
  };
  const names = () => shown().flatMap((chart) => chart.names);

  const fill = (node, wanted) => {
    const now = [...node.children];
    if (now.length !== wanted.length || wanted.some((one, i) => one !== now[i]))
      node.replaceChildren(...wanted);
  };
  const arrange = () => {
    const searching = Boolean(filter.value.trim());
    const all = charts();
    const figureOf = (chart) => {
      const known = plots.get(chart.key);
      if (!known || known.chart.names.length !== chart.names.length) {
        known?.plot?.destroy();
        if (known) views.unobserve(known.figure);
        plots.set(chart.key, new Plot(chart, page));
        views.observe(plots.get(chart.key).figure);
      }
      return plots.get(chart.key).figure;
    };
    for (const panel of panels) {
      const mine = all.filter(({ panel: key }) => key === panel.key);
      const found = mine.filter(matches);
      panel.node.hidden = searching ? !found.length : !mine.length;
      const first = searching ? found : mine.filter(({ leads }) => leads);
      const rest = searching ? [] : mine.filter(({ leads }) => !leads);
      fill(panel.leading, first.map(figureOf));
      panel.fold.hidden = !rest.length;
      panel.count.textContent = String(rest.length);
      fill(panel.rest, panel.fold.open ? rest.map(figureOf) : []);
    }
  };
  const draw = (force) => {
    arrange();
    for (const { key } of shown()) {
      const plot = plots.get(key);
      if (plot.figure.isConnected) plot.update(force);
    }
    const count = new Set(main.flatMap((source) => source.charts.flatMap((chart) => chart.names))).size;
    const live = main.some((source) => source.live);
    status.textContent = count
      ? `${count} metric${count === 1 ? "" : "s"}${live ? " · live" : ""}`
      : live
        ? "waiting for the first points"
        : "no metrics";
  };

  // --- zoom: the same stretch of steps in every chart, with finer points once it stands still ---

  let due = 0;
  const later = (act) => {
    cancelAnimationFrame(due);
    due = requestAnimationFrame(act);
  };
  const spread = () => {
    page.spreading = true;
    for (const plot of plots.values()) plot.zoomed();
    page.spreading = false;
  };
  let looking = 0;
  const look = () => {
    clearTimeout(looking);
    looking = setTimeout(async () => {
      if (!page.zoom) {
        for (const source of page.sources) source.fine = null;
      } else {
        // a little more than is seen, so that a small move needs no new points
        const { min, max } = page.zoom;
        const room = (max - min) / 2;
        const coarse = (source) => names().some((name) => (source.series.get(name)?.steps.length ?? 0) > 400);
        await Promise.all(
          page.sources
            .filter(coarse)
            .map((source) => source.closer(names(), min - room, max + room).catch(() => {})),
        );
      }
      draw(false);
    }, CLOSER_MS);
  };
  const move = (by, factor) => {
    const [from, to] = page.whole();
    const { min, max } = page.zoom ?? { min: from, max: to };
    const half = ((max - min) / 2) * factor;
    const middle = (min + max) / 2 + by * (max - min);
    if (middle - half <= from && middle + half >= to) page.onWhole();
    else page.onZoom(Math.max(from, middle - half), Math.min(to, middle + half));
  };

  // --- fetching ---

  let bandOf = "";
  const loadBand = async () => {
    const wanted = names();
    const key = wanted.join("\n");
    if (!root.dataset.band || !wanted.length || key === bandOf) return;
    bandOf = key;
    const query = new URLSearchParams(wanted.map((name) => ["names", name]));
    const answer = await fetch(`${root.dataset.band}&${query}`, { cache: "no-store" });
    if (answer.ok && !answer.redirected) page.bands = (await answer.json()).bands;
  };
  const load = async (which) => {
    const wanted = names();
    await Promise.all(which.map((source) => source.load(source.known && wanted.length ? wanted : null)));
    // one run may lead with a chart that another folds away
    const asked = names();
    await Promise.all(
      page.sources
        .filter((source) =>
          source.known ? source.lacks(asked) : source.role === "reference" && asked.length,
        )
        .map((source) => source.load(asked)),
    );
    await loadBand();
    draw(false);
  };
  let timer = 0;
  const tick = async (which) => {
    clearTimeout(timer);
    const began = performance.now();
    try {
      await load(which);
    } catch (error) {
      if (error.message === "signed-out") {
        status.textContent = "you were signed out; reload the page";
        return;
      }
      status.textContent = "the server cannot be reached; trying again";
    }
    const alive = main.filter(({ live }) => live);
    // A slow answer (a very long run) is asked for less often.
    if (alive.length)
      timer = setTimeout(() => tick(alive), Math.max(POLL_MS, 4 * (performance.now() - began)));
  };
  const more = () => {
    draw(false);
    if (page.sources.some((source) => source.lacks(names())))
      tick(page.sources.filter(({ known }) => known)).then(() => page.zoom && look());
    else loadBand().then(() => draw(false));
  };

  // --- what people do ---

  let typed = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(more, 150);
  });
  smooth.addEventListener("change", () => {
    page.weight = Number(smooth.value);
    draw(true);
  });
  for (const { fold } of panels) fold.addEventListener("toggle", more);
  const press = (id, act) => document.getElementById(id).addEventListener("click", act);
  press("chart-reset", () => page.onWhole());
  press("chart-closer", () => move(0, 0.5));
  press("chart-wider", () => move(0, 2));
  press("chart-earlier", () => move(-0.4, 1));
  press("chart-later", () => move(0.4, 1));
  for (const button of document.querySelectorAll("[data-run-toggle]"))
    button.addEventListener("click", () => {
      const source = page.sources.find(({ id }) => id === button.dataset.runToggle);
      source.visible = !source.visible;
      button.setAttribute("aria-pressed", String(source.visible));
      draw(true);
    });
  document.addEventListener("themechange", () => {
    page.inks = figures.inks(root);
    draw(true);
  });
  let width = 0;
  new ResizeObserver(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    for (const plot of plots.values()) plot.resize();
  }).observe(root);

  tick(main);
})();
