// The charts of a page: of one run with others behind it, or of several side by side. Shared cursor
// and zoom (kept when new points arrive); what is folded away is neither fetched nor drawn; while a
// run lives it is asked for news.
(() => {
  const root = document.getElementById("charts");
  if (!root || !window.uPlot) return;
  const { Source, Plot, figures, axes } = window.concord;
  const POLL_MS = 2000;
  const CLOSER_MS = 250;
  const filter = document.getElementById("chart-filter");
  const smooth = document.getElementById("chart-smooth");
  const smoothValue = document.getElementById("chart-smooth-value");
  const axis = document.getElementById("chart-axis");
  const log = document.getElementById("chart-log");
  const clip = document.getElementById("chart-clip");
  const pinned = document.getElementById("chart-pinned");
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

  // How a person likes charts drawn, on this device; where nothing can be kept, for this page.
  const KEPT = "concord-charts";
  const liked = { axis: "step", weight: 0, log: false, clip: false, pins: [] };
  try {
    Object.assign(liked, JSON.parse(localStorage.getItem(KEPT)) ?? {});
  } catch {
    // blocked, or not ours
  }
  const keep = () => {
    try {
      const { weight, pins } = page;
      const kept = { axis: liked.axis, weight, log: page.log, clip: page.clip, pins: [...pins] };
      localStorage.setItem(KEPT, JSON.stringify(kept));
    } catch {
      // blocked or full
    }
  };

  const page = {
    sources: JSON.parse(document.getElementById("chart-sources").textContent).map((one) => new Source(one)),
    inks: figures.inks(root),
    weight: Number(liked.weight) || 0,
    axis: liked.axis,
    log: Boolean(liked.log),
    clip: Boolean(liked.clip),
    pins: new Set(liked.pins),
    zoom: null, // {axis, min, max} of what is shown, or null for the whole run
    step: root.dataset.step ? Number(root.dataset.step) : null, // that the address points at
    spreading: false, // one chart's zoom is being given to the others
    bands: {},
    band: (name) => page.bands[name] ?? null,
    along: (source) => axes.axisOf(source, page.axis),
    // The whole of an axis, of all runs.
    whole: (which) => {
      let from = Infinity,
        to = -Infinity;
      for (const source of page.sources) {
        const along = axes.axisOf(source, which);
        if (!along.known) continue;
        for (const [name, { steps }] of source.series)
          if (steps.length && !source.byTime(name)) {
            const first = Math.max(steps[0], along.first);
            const last = Math.min(steps[steps.length - 1], along.last);
            if (first > last) continue;
            from = Math.min(from, along.at(first));
            to = Math.max(to, along.at(last));
          }
      }
      return from <= to ? [from, to] : [0, 1];
    },
    onZoom: (which, min, max) => {
      if (max > min) {
        page.zoom = { axis: which, min, max };
        later(spread);
        look();
      }
    },
    onWhole: () => {
      page.zoom = null;
      later(spread);
      look();
    },
    onPin: (key) => {
      if (!page.pins.delete(key)) page.pins.add(key);
      keep();
      more();
      plots.get(key)?.pin.focus();
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
        (searching ||
          chart.leads ||
          page.pins.has(chart.key) ||
          panels.find(({ key }) => key === chart.panel)?.fold.open),
    );
  };
  // Those of the axis too: without them nobody knows where a step lay.
  const names = () => [
    ...new Set([
      ...shown().flatMap((chart) => chart.names),
      ...page.sources.map((source) => source.axes[liked.axis]).filter(Boolean),
    ]),
  ];

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
    const onTop = all.filter((chart) => page.pins.has(chart.key) && matches(chart));
    pinned.hidden = !onTop.length;
    fill(pinned.querySelector("[data-pinned]"), onTop.map(figureOf));
    for (const panel of panels) {
      const mine = all.filter(({ panel: key, key: own }) => key === panel.key && !page.pins.has(own));
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
  const offer = () => {
    const may = (source, which) => source.lacks([source.axes[which]]) || axes.axisOf(source, which).known;
    for (const option of axis.options) {
      option.dataset.words ??= option.textContent;
      option.disabled = !main.some((source) => may(source, option.value));
      option.textContent = option.dataset.words + (option.disabled ? " (not known)" : "");
    }
    const given = [...axis.options].some(({ value, disabled }) => value === liked.axis && !disabled);
    page.axis = axis.value = given ? liked.axis : "step";
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
        for (const source of page.sources) source.fine = {};
      } else {
        // a little more than is seen, so that a small move needs no new points
        const { axis: which, min, max } = page.zoom;
        const room = (max - min) / 2;
        const closer = (source) => {
          const coarse = names().filter((name) => (source.series.get(name)?.steps.length ?? 0) > 400);
          const stretch = (along) => [along.step(min - room), along.step(max + room)];
          const asked = [];
          const along = axes.axisOf(source, which);
          const bySteps = coarse.filter((name) => !source.byTime(name));
          const byTime = coarse.filter((name) => source.byTime(name));
          if (which === page.axis && along.known && bySteps.length)
            asked.push(source.closer(bySteps, ...stretch(along), "step"));
          if (which === "time" && byTime.length) {
            const clock = axes.clockOf(source, source.series.get(byTime[0]).steps[0]);
            asked.push(source.closer(byTime, ...stretch(clock), "time"));
          }
          return Promise.all(asked).catch(() => {});
        };
        await Promise.all(page.sources.map(closer));
      }
      draw(false);
    }, CLOSER_MS);
  };
  const move = (by, factor) => {
    const which = page.zoom?.axis ?? page.axis;
    const [from, to] = page.whole(which);
    const { min, max } = page.zoom ?? { min: from, max: to };
    const half = ((max - min) / 2) * factor;
    const middle = (min + max) / 2 + by * (max - min);
    if (middle - half <= from && middle + half >= to) page.onWhole();
    else page.onZoom(which, Math.max(from, middle - half), Math.min(to, middle + half));
  };

  // --- fetching ---

  let bandOf = "";
  const loadBand = async () => {
    const wanted = names().filter((name) => !main[0].byTime(name));
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
    offer();
    await loadBand();
    draw(false);
  };
  let timer = 0;
  const stream = window.concord.live; // on the page of one run
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
    // A slow answer (a very long run) is asked for less often; where points are streamed, none is.
    if (alive.length && !stream?.streaming) askIn(Math.max(POLL_MS, 4 * (performance.now() - began)));
  };
  const askIn = (pause) => {
    clearTimeout(timer);
    timer = setTimeout(() => tick(main.filter(({ live }) => live)), Math.max(pause, stream?.pause() ?? 0));
  };
  document.addEventListener("live:stale", () => tick(main));
  document.addEventListener("live:down", () => askIn(POLL_MS + Math.random() * stream.pause()));
  document.addEventListener("live:points", ({ detail }) => {
    if (main[0].add(detail.series)) draw(false);
    else tick(main);
  });
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
  const say = () => {
    smoothValue.textContent = page.weight ? page.weight.toFixed(2) : "none";
  };
  Object.assign(smooth, { value: String(page.weight) });
  Object.assign(log, { checked: page.log });
  Object.assign(clip, { checked: page.clip });
  say();
  smooth.addEventListener("input", () => {
    page.weight = Number(smooth.value);
    say();
    keep();
    later(() => draw(true));
  });
  axis.addEventListener("change", () => {
    page.axis = liked.axis = axis.value;
    page.zoom = null;
    for (const source of page.sources) source.fine = {};
    keep();
    more();
  });
  for (const [box, name] of [
    [log, "log"],
    [clip, "clip"],
  ])
    box.addEventListener("change", () => {
      page[name] = box.checked;
      keep();
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
