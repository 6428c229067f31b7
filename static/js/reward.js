// A form over the text of a reward: <textarea data-reward="reward">. The text stays what is sent, and
// what the form changes is written there at once; what is typed there is shown in the form. Kinds and
// fields come from #reward-grammar (workers/config/reward_grammar.py). Nothing is checked here: the
// errors of the server are put beside the fields they name.
(() => {
  const source = document.getElementById("reward-grammar");
  if (!source) return;
  const { sources, deepest } = JSON.parse(source.textContent);
  const kinds = new Map(sources.map((one) => [one.type, one]));

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") node.addEventListener(name, value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  };
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const isSet = (value) => value !== undefined && value !== null;
  const pretty = (value) => JSON.stringify(value, null, 2);

  // reward.parts[1].name → reward.parts[1] → reward.parts → reward → nothing
  const above = (path) => path.slice(0, Math.max(path.lastIndexOf("."), path.lastIndexOf("["), 0));

  function form(text) {
    const name = text.dataset.reward;
    const without = (text.dataset.without || "").split(" ");
    const none = "none" in text.dataset;
    const field = text.closest(".field");
    const box = make("div", { class: "reward-form stack" });
    const asText = make("details", { class: "reward-text" }, make("summary", {}, "As text (JSON)"));
    text.before(box, asText);
    asText.append(text);
    let value = null;
    let errors = [];

    // --- the errors of the server: path and words; what cannot be placed stays where it was
    const take = (told) => {
      const before = errors.length;
      for (const line of told ? [...told.children] : []) {
        const found = line.textContent.match(/^([\w.[\]-]+):? (.*)$/s);
        if (!found || !(found[1] === name || found[1].startsWith(`${name}.`))) continue;
        errors.push({ path: found[1], words: found[2] });
        line.remove();
      }
      if (errors.length > before) {
        told.append(make("li", {}, `Wrong here: ${errors.map((one) => one.path).join(", ")}.`));
      }
    };
    take(field.querySelector("ul.error"));
    document.addEventListener("htmx:afterSwap", (event) => {
      const told = event.target.querySelector?.("[data-reward-errors]");
      if (!told) return;
      errors = [];
      take(told);
      if (value !== null) draw();
    });
    const place = () => {
      for (const { path, words } of errors) {
        let at = path;
        let node = null;
        while (at && !(node = box.querySelector(`[data-path="${CSS.escape(at)}"]`))) at = above(at);
        const id = `reward-error-${path}`;
        (node || box).append(make("ul", { class: "error", id }, make("li", {}, words)));
        node?.classList.add("invalid");
        const control = node?.querySelector("input, select, textarea");
        control?.setAttribute("aria-invalid", "true");
        control?.setAttribute("aria-describedby", id);
        for (let up = node; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
      }
    };

    const write = (path) => {
      errors = errors.filter((one) => !(one.path === path || one.path.startsWith(`${path}.`)));
      text.value = value === null ? "" : pretty(value);
      text.dispatchEvent(new CustomEvent("rewardchange", { bubbles: true }));
    };
    const changed = (path) => {
      write(path);
      draw();
    };

    // --- one field of a group: its control writes into `at`, the object of the group
    function control(one, at, path, redraw) {
      const id = `reward-${path}`;
      const now = at[one.name];
      const set = (given) => {
        if (given === undefined) delete at[one.name];
        else at[one.name] = given;
        if (redraw) changed(path);
        else write(path);
      };
      const help = make("div", { class: "help" }, one.doc, hint(one));
      const wrap = (node, ...more) =>
        make(
          "div",
          { class: "field", "data-path": path },
          make("label", { for: id }, one.name),
          node,
          ...more,
          help,
        );
      if (one.kind === "bool") {
        const tick = make("input", {
          type: "checkbox",
          id,
          checked: isSet(now) ? now === true : one.default === true,
          change: (event) => set(event.target.checked === one.default ? undefined : event.target.checked),
        });
        const label = make("label", { class: "check", for: id }, tick, " ", make("span", {}, one.name));
        return make("div", { class: "field", "data-path": path }, label, help);
      }
      if (one.kind === "choice") {
        const unset = one.optional || !isSet(one.default);
        const wanted = isSet(now) ? String(now) : unset ? "" : one.default;
        const listed = [...(unset ? [["", "unless set"]] : []), ...one.choices.map((word) => [word, word])];
        if (!listed.some(([word]) => word === wanted)) listed.push([wanted, wanted]);
        const options = listed.map(([word, shown]) =>
          make("option", { value: word, selected: word === wanted }, shown),
        );
        const choose = (event) =>
          set(
            event.target.value === (unset ? "" : one.default) && !one.kept ? undefined : event.target.value,
          );
        return wrap(make("select", { id, change: choose }, ...options));
      }
      if (one.kind === "texts" || one.kind === "object") {
        const lines = one.kind === "texts";
        const shown = !isSet(now) ? "" : lines && Array.isArray(now) ? now.join("\n") : pretty(now);
        const read = (typed) => {
          if (!typed.trim()) return one.kept ? [] : undefined;
          if (lines) return typed.split("\n").filter((line) => line.trim());
          try {
            return JSON.parse(typed);
          } catch {
            return typed;
          }
        };
        const typed = make(
          "textarea",
          {
            id,
            rows: lines ? 3 : 6,
            class: lines ? "" : "code",
            spellcheck: "false",
            input: (event) => set(read(event.target.value)),
          },
          shown,
        );
        return wrap(typed, ...(lines ? [make("div", { class: "help" }, "One on each line.")] : []));
      }
      const isNumber = one.kind === "int" || one.kind === "float";
      const read = (typed) => {
        if (typed === "") return one.kept ? "" : undefined;
        const number = Number(typed);
        return isNumber && typed.trim() && Number.isFinite(number) ? number : typed;
      };
      return wrap(
        make("input", {
          id,
          type: "text",
          inputmode: isNumber ? "decimal" : null,
          spellcheck: "false",
          autocomplete: "off",
          value: isSet(now) ? (isObject(now) ? pretty(now) : String(now)) : null,
          placeholder: isSet(one.default) && one.default !== "" ? String(one.default) : null,
          input: (event) => set(read(event.target.value)),
        }),
      );
    }

    const hint = (one) => {
      if (!isSet(one.default) || one.default === "" || typeof one.default === "object") return null;
      return make("span", {}, ` Default ${one.default}${one.unit ? ` ${one.unit}` : ""}.`);
    };

    // --- the fields of a group
    function fields(group, at, path, depth) {
      const steers = new Set(group.fields.map((one) => one.only_with?.[0]));
      const shown = make("div", { class: "fields" });
      const rest = make("div", { class: "fields" });
      const below = [];
      if (group.one_of.length) shown.append(...test(group, at, path, depth));
      for (const one of group.fields) {
        const here = `${path}.${one.name}`;
        if (group.one_of.includes(one.name)) continue;
        if (one.only_with && !(one.name in at)) {
          const [other, values] = one.only_with;
          const default_ = group.fields.find((each) => each.name === other).default;
          if (!values.includes(at[other] ?? default_)) continue;
        }
        if (one.kind === "entries") below.push(entries(one, at, here, depth));
        else if (one.kind === "source")
          below.push(part(at.source, here, depth - 1, (made) => (at.source = made)));
        else {
          const into = one.main || one.name in at ? shown : rest;
          into.append(control(one, at, here, steers.has(one.name)));
        }
      }
      const more = rest.children.length
        ? [make("details", {}, make("summary", {}, `More fields (${rest.children.length})`), rest)]
        : [];
      return [...(shown.children.length ? [shown] : []), ...below, ...more];
    }

    // Of the tests of a rule exactly one is given: it is chosen first, then filled in.
    function test(group, at, path, depth) {
      const given = group.one_of.find((name) => name in at) ?? "";
      const empty = { texts: [], entry: {}, choice: "json" };
      const choose = (event) => {
        for (const name of group.one_of) delete at[name];
        const one = group.fields.find((each) => each.name === event.target.value);
        if (one) at[one.name] = empty[one.kind] ?? "";
        changed(path);
      };
      const id = `reward-${path}.test`;
      const options = [["", "Choose a test"], ...group.one_of.map((name) => [name, name])].map(
        ([word, shown]) => make("option", { value: word, selected: word === given }, shown),
      );
      const select = make("select", { id, change: choose }, ...options);
      const found = [
        make(
          "div",
          { class: "field", "data-path": `${path}.contains` },
          make("label", { for: id }, "test"),
          select,
        ),
      ];
      const one = group.fields.find((each) => each.name === given);
      if (one?.entry) {
        if (!isObject(at[given])) at[given] = {};
        found.push(
          make(
            "fieldset",
            { "data-path": `${path}.${given}` },
            make("legend", {}, given),
            ...fields(one.entry, at[given], `${path}.${given}`, depth),
          ),
        );
      } else if (one) found.push(control({ ...one, kept: true }, at, `${path}.${given}`, given === "format"));
      return found;
    }

    // --- lists of rules and of parts
    function entries(one, at, path, depth) {
      const title = one.entry.title;
      if (!Array.isArray(at[one.name])) at[one.name] = [];
      const list = at[one.name];
      const made = list.map((entry, i) => {
        const here = `${path}[${i}]`;
        if (!isObject(entry)) list[i] = entry = {};
        const take = () => {
          list.splice(i, 1);
          errors = errors.filter((each) => !each.path.startsWith(path));
          changed(path);
        };
        const remove = make(
          "button",
          { type: "button", class: "button small", click: take },
          `Remove ${title.toLowerCase()} ${i + 1}`,
        );
        return make(
          "fieldset",
          { class: "reward-group stack", "data-path": here },
          make("legend", {}, `${title} ${i + 1}`),
          ...fields(one.entry, entry, here, depth),
          make("div", { class: "buttons" }, remove),
        );
      });
      const add = () => {
        const entry = { name: `${title.toLowerCase()}_${list.length + 1}` };
        if (one.entry.fields.some((each) => each.kind === "source"))
          entry.source = { type: "rules", rules: [] };
        list.push(entry);
        changed(path);
        document.getElementById(`reward-${path}[${list.length - 1}].name`)?.focus();
      };
      const more = make(
        "button",
        { type: "button", class: "button small", id: `reward-${path}.add`, click: add },
        `Add a ${title.toLowerCase()}`,
      );
      return make(
        "div",
        { class: "stack", "data-path": path },
        ...made,
        make("div", { class: "buttons" }, more),
      );
    }

    // --- one source: its kind, then its fields
    function part(given, path, depth, put) {
      const now = isObject(given) ? given : null;
      const kind = now ? (now.type ?? "") : "";
      const offered = sources.filter(
        (one) => !without.includes(one.type) && (depth > 1 || one.type !== "sum"),
      );
      const choose = (event) => {
        const type = event.target.value;
        let made = type ? { type } : null;
        // What is there becomes the first part of the sum that it is put into.
        if (type === "sum") made.parts = kinds.has(kind) ? [{ name: "part_1", weight: 1, source: now }] : [];
        if (kind === "sum" && type && type !== "sum") {
          const same = (now.parts || []).find((each) => each?.source?.type === type);
          if (same) made = same.source;
        }
        put(made);
        errors = errors.filter((each) => !each.path.startsWith(path));
        changed(path);
      };
      const id = `reward-${path}.type`;
      const listed = offered.map((one) => [one.type, one.title]);
      if (!kind || path !== name || none)
        listed.unshift(["", path === name && none ? "None" : "Choose a kind"]);
      if (kind && !listed.some(([type]) => type === kind)) listed.push([kind, kind]);
      const options = listed.map(([type, title]) =>
        make("option", { value: type, selected: type === kind }, title),
      );
      const group = kinds.get(kind);
      const select = make("select", { id, change: choose }, ...options);
      const help = make("div", { class: "help" }, group ? group.about : "");
      const label = path === name ? "Kind of reward" : "Kind of source";
      const top = make(
        "div",
        { class: "field", "data-path": `${path}.type` },
        make("label", { for: id }, label),
        select,
        help,
      );
      return make(
        "div",
        { class: "stack", "data-path": path },
        top,
        ...(group ? fields(group, now, path, depth) : []),
      );
    }

    function draw() {
      const focused = document.activeElement?.id;
      box.replaceChildren(part(value, name, deepest, (made) => (value = made)));
      place();
      if (focused?.startsWith("reward-")) document.getElementById(focused)?.focus();
    }

    function read() {
      const typed = text.value.trim();
      try {
        value = typed ? JSON.parse(typed) : null;
        if (value !== null && !isObject(value)) throw new SyntaxError("no object");
      } catch {
        box.replaceChildren(
          make("p", { class: "muted" }, "The text below is no JSON object, so there is no form of it."),
        );
        asText.open = true;
        return;
      }
      draw();
    }
    text.addEventListener("input", read);
    read();
  }

  document.querySelectorAll("textarea[data-reward]").forEach(form);
})();
