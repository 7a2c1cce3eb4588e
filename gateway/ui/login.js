// The login of a cluster with users.

import { request } from "./api.js";
import { el } from "./dom.js";

// A form that calls `onToken(token)` after a login.
export function login(root, onToken) {
  const user = el("input", { id: "login-user", name: "user", autocomplete: "username", required: true });
  const password = el("input", {
    id: "login-password", name: "password", type: "password", autocomplete: "current-password", required: true,
  });
  const problem = el("p", { class: "problem", role: "alert" });
  const button = el("button", { type: "submit", text: "Log in" });
  const form = el("form", { class: "login card", "aria-labelledby": "login-title" },
    el("h1", { id: "login-title", text: "Log in" }),
    el("p", { class: "hint", text: "This cluster has users. The console shows what your roles allow." }),
    el("label", { for: "login-user", text: "User" }), user,
    el("label", { for: "login-password", text: "Password" }), password,
    problem, button);
  // The policy of the page lets no form navigate, so a form without this script sends nothing.
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      const json = { user: user.value, password: password.value };
      const answer = await request("/api/v1/auth/login", { method: "POST", json, isLogin: true });
      onToken((await answer.json()).token);
    } catch (error) {
      problem.textContent = error.status === 401 ? "The user or the password is wrong." : error.message;
      password.focus();
      password.select();
    } finally {
      button.disabled = false;
    }
  });
  root.replaceChildren(form);
  user.focus();
}
