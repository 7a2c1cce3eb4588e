// The frame of the console: login, navigation by the part of the address behind `#`, theme, and the
// connection's state. Each screen is a module of its own.

import { can, forgetRights, getJson, setToken, whenDenied } from "./api.js";
import { el, setClass, setText } from "./dom.js";
import { Live } from "./live.js";
import { login } from "./login.js";
import { buckets } from "./buckets.js";
import { feeds } from "./feeds.js";
import { jobs } from "./jobs.js";
import { nodes } from "./nodes.js";
import { objects } from "./objects.js";
import { overview } from "./overview.js";
import { shard } from "./shard.js";

// Screens with `under` belong to the entry of that name in the navigation.
const SCREENS = {
  overview: { title: "Overview", open: overview },
  nodes: { title: "Nodes", open: nodes },
  buckets: { title: "Buckets", open: buckets },
  jobs: { title: "Jobs", open: jobs },
  feeds: { title: "Training feeds", entry: "Feeds", open: feeds },
  objects: { title: "Objects", open: objects, under: "buckets" },
  shard: { title: "Contents", open: shard, under: "buckets" },
};

const page = {
  main: document.getElementById("main"),
  screens: document.getElementById("screens"),
  live: document.getElementById("live"),
  theme: document.getElementById("theme"),
  user: document.getElementById("user"),
  logout: document.getElementById("logout"),
};
const live = new Live();
let current = null;
let isLoggedIn = false;

// The screen and its parameters in the address: `#/objects?bucket=…`.
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { id: path in SCREENS ? path : "overview", params: new URLSearchParams(query) };
}

function showNavigation(id) {
  const active = SCREENS[id].under ?? id;
  for (const link of page.screens.querySelectorAll("a")) {
    if (link.dataset.screen === active) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function close() {
  if (!current) return;
  current.isOpen = false;
  current.timers.forEach(clearInterval);
  current.abort.abort();
  current.endLive();
  current.screen?.close?.();
  current = null;
}

// Opens the screen of the address.
function open({ isFirst = false } = {}) {
  if (!isLoggedIn) return;
  close();
  const { id, params } = address();
  const { title, open: openScreen } = SCREENS[id];
  const heading = el("h1", { text: title, tabindex: "-1" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const root = el("div", { class: "screen" });
  page.main.replaceChildren(el("div", { class: "screen-head" }, heading), problem, root);
  document.title = `${title} – Forebay`;
  const opened = { isOpen: true, timers: [], abort: new AbortController(), endLive: () => {} };
  current = opened;

  const context = {
    live,
    params,
    can,
    heading,
    signal: opened.abort.signal,
    setTitle(text) {
      setText(heading, text);
      document.title = `${text} – Forebay`;
    },
    // Runs `work` now and again every `ms`, one at a time; shows its failure above the screen.
    poll(ms, work) {
      let isRunning = false;
      const run = async () => {
        if (isRunning || !opened.isOpen || document.hidden) return;
        isRunning = true;
        try {
          await work();
          if (opened.isOpen) problem.hidden = true;
        } catch (error) {
          if (opened.isOpen && error.name !== "AbortError") {
            setText(problem, error.message);
            problem.hidden = false;
          }
        } finally {
          isRunning = false;
        }
      };
      opened.timers.push(setInterval(run, ms));
      run();
      return run;
    },
  };
  opened.screen = openScreen(root, context) ?? {};
  const update = () => opened.screen.update?.(live);
  opened.endLive = live.listen(update);
  update();
  showNavigation(id);
  if (!isFirst) heading.focus();
}

const STATES = {
  live: ["Live", "good"],
  connecting: ["Connecting…", ""],
  "cut off": ["No connection", "bad"],
  refused: ["Figures need the right to see the cluster", "warn"],
};

function showState() {
  const [text, kind] = STATES[live.state];
  setText(page.live, isLoggedIn ? text : "");
  setClass(page.live, `live ${isLoggedIn ? kind : ""}`);
  page.live.title = live.problem;
}

// The theme that the button switches to, by the one that is shown.
const THEMES = { light: "Dark", dark: "Light" };

// The theme of the page: the one chosen with the button, else that of the system.
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText(page.theme, `${THEMES[theme]} theme`);
}

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const ofSystem = () => (dark.matches ? "dark" : "light");
  let chosen = localStorage.getItem("forebay-theme");
  setTheme(chosen in THEMES ? chosen : ofSystem());
  dark.addEventListener("change", () => {
    if (!(chosen in THEMES)) setTheme(ofSystem());
  });
  page.theme.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("forebay-theme", chosen);
    setTheme(chosen);
  });
}

function askLogin() {
  isLoggedIn = false;
  close();
  live.forget();
  setToken(null);
  forgetRights();
  page.logout.hidden = true;
  setText(page.user, "");
  page.screens.replaceChildren();
  document.title = "Log in – Forebay";
  login(page.main, (token) => {
    setToken(token);
    enter();
  });
  showState();
}

// Opens the console for the user of the token, or asks for a login.
async function enter() {
  let who;
  try {
    who = await getJson("/api/v1/auth/whoami");
  } catch (error) {
    if (error.status !== 401) {
      const retry = el("button", { type: "button", text: "Try again", onclick: enter });
      page.main.replaceChildren(el("p", { class: "problem", role: "alert", text: error.message }), retry);
    }
    return;
  }
  const isFirst = !isLoggedIn && !who.user;
  isLoggedIn = true;
  setText(page.user, who.user ?? "");
  page.logout.hidden = !who.user;
  const entries = Object.entries(SCREENS).filter(([, screen]) => !screen.under);
  page.screens.replaceChildren(...entries.map(([id, { title, entry = title }]) =>
    el("li", null, el("a", { href: `#/${id}`, "data-screen": id, text: entry }))));
  live.start();
  showState();
  open({ isFirst });
}

whenDenied(askLogin);
live.listen(showState);
startTheme();
addEventListener("hashchange", () => open());
page.logout.addEventListener("click", askLogin);
document.getElementById("skip").addEventListener("click", (event) => {
  // The address names the screen, so the link must not change it.
  event.preventDefault();
  page.main.focus();
});
enter();
