// Passkeys: <form data-passkey="create|get" data-options="id of its JSON, or an address that gives
// it"> is sent once the browser has made or used one. A form that is hidden shows itself only where
// the browser can do so. webauthn-json.js, which allauth brings, turns the answers into JSON.
(() => {
  const problems = {
    NotAllowedError: gettext("It was not confirmed, or there is no passkey for this site here. Try again."),
    InvalidStateError: gettext("This device has a passkey of yours already."),
    SecurityError: gettext("Passkeys need HTTPS and the name of the site, not an address of numbers."),
  };

  const options = async (form) => {
    const kept = document.getElementById(form.dataset.options);
    if (kept) return JSON.parse(kept.textContent);
    const answer = await fetch(form.dataset.options, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(gettext("The server gave no answer. Try again in a moment."));
    return answer.json();
  };

  const made = async (form) => {
    const { creation_options: asked } = await options(form);
    const alone = form.querySelector("[name=passwordless]")?.checked ?? false;
    Object.assign(asked.publicKey.authenticatorSelection, {
      residentKey: alone ? "required" : "discouraged",
      requireResidentKey: alone,
      userVerification: alone ? "required" : "preferred",
    });
    return window.webauthnJSON.create(asked);
  };

  const used = async (form) => window.webauthnJSON.get((await options(form)).request_options);

  const able = Boolean(window.PublicKeyCredential && window.webauthnJSON);
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    if (able) form.hidden = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const told = form.querySelector("p.note.error");
      const button = form.querySelector("button[type=submit]");
      told.hidden = true;
      if (!able) {
        told.textContent = problems.SecurityError;
        told.hidden = false;
        return;
      }
      button.disabled = true;
      try {
        const credential = await (form.dataset.passkey === "create" ? made(form) : used(form));
        form.querySelector("[name=credential]").value = JSON.stringify(credential);
        form.submit();
      } catch (error) {
        told.textContent = problems[error.name] ?? error.message;
        told.hidden = false;
        button.disabled = false;
      }
    });
  }
})();
