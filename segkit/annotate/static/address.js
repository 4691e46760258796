// Addresses of the server: below that of the page, with the secret token, which stays in this tab.

const KEY = "segkit-token";
const given = new URLSearchParams(location.search).get("token");
if (given) sessionStorage.setItem(KEY, given);
history.replaceState(null, "", location.pathname + location.hash); // the secret token leaves the address bar

/** The address of a path of the server. */
export function at(path, query = "") {
  const params = new URLSearchParams(query);
  params.set("token", sessionStorage.getItem(KEY) ?? "");
  return new URL(`${path}?${params}`, location.href).href;
}
