"use strict"
// The keyboard: "/" searches, "?" tells the keys, Ctrl-K jumps anywhere, Escape closes.
const inside = root => {
  let one = root.activeElement
  while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement
  return one
}
const isTyping = () => ["INPUT", "TEXTAREA", "SELECT"].includes(inside(document)?.tagName)
const deep = function* (root) {
  for (const one of root.querySelectorAll("*")) {
    yield one
    if (one.shadowRoot) yield* deep(one.shadowRoot)
  }
}
const isSeen = one => one.getClientRects().length > 0
const first = matches => {
  for (const one of deep(document.getElementById("main"))) if (matches(one) && isSeen(one)) return one
}
// What has the focus may be drawn anew; then what leads to the same gets it, or it would be nowhere.
const alike = (root, one) =>
  [...root.querySelectorAll(one.tagName)].filter(other => other.getAttribute("href") === one.getAttribute("href"))
let focused = null
const redrawn = new MutationObserver(() => {
  const {one, root, place} = focused
  if (one.isConnected || document.activeElement !== document.body) return
  const all = alike(root, one)
  all[Math.min(place, all.length - 1)]?.focus({preventScroll: true})
})
addEventListener("focusin", event => {
  const one = event.composedPath()[0], root = one.getRootNode()
  focused = {one, root, place: alike(root, one).indexOf(one)}
  redrawn.disconnect()
  redrawn.observe(root, {childList: true, subtree: true})
})
addEventListener("focusout", event => {
  const one = event.composedPath()[0]
  // What is drawn anew loses it as well, before it goes.
  setTimeout(() => { if (focused.one === one && one.isConnected && one !== inside(document)) redrawn.disconnect() })
})
// A page in a frame has no cookies: its links bear the token that it came with.
const token = new URLSearchParams(location.search).get("token")
const withToken = href => {
  const url = new URL(href, location.href)
  if (token && url.origin === location.origin) url.searchParams.set("token", token)
  return url.href
}
addEventListener("click", event => {
  const link = event.composedPath().find(one => one.tagName === "A" && one.href)
  if (link && token) link.href = withToken(link.href)
}, true)

const palette = document.getElementById("palette"), keys = document.getElementById("keys")
const wanted = document.getElementById("wanted"), found = document.getElementById("found")
// What the list answers; null: nothing yet. Of two questions the later one could be answered first, so
// there is one at a time, and Enter waits for its answer.
let answered = null, isAsking = false, isGoing = false
const look = async () => {
  if (isAsking) return
  isAsking = true
  while (answered !== wanted.value) {
    const asked = wanted.value
    const at = new URLSearchParams(location.search).get("at") ?? ""
    const answer = await fetch(withToken(`find?${new URLSearchParams({q: asked, at})}`), {cache: "no-store"})
      .catch(() => null)
    list(answer?.ok ? await answer.json() : [])
    answered = asked
  }
  isAsking = false
  if (isGoing) found.querySelector("a")?.click()
  isGoing = false
}
const list = all => {
  const lines = all.map(one => {
    const line = document.createElement("li"), link = document.createElement("a")
    const kind = document.createElement("small")
    kind.textContent = one.kind
    link.href = withToken(one.url)
    link.append(one.name, " ", kind)
    line.append(link)
    return line
  })
  found.replaceChildren(...lines)
  document.getElementById("none").hidden = lines.length > 0
}
const openPalette = () => {
  wanted.value = ""
  answered = null
  palette.showModal()
  wanted.focus()
  look()
}
wanted.addEventListener("input", look)
palette.addEventListener("close", () => { isGoing = false })
palette.addEventListener("keydown", event => {
  const links = [...found.querySelectorAll("a")]
  const at = links.indexOf(document.activeElement)
  if (event.key === "ArrowDown") links[Math.min(at + 1, links.length - 1)]?.focus()
  else if (event.key === "ArrowUp") (at > 0 ? links[at - 1] : wanted).focus()
  else if (event.key === "Enter" && at < 0) { isGoing = true; look() }
  else return
  event.preventDefault()
})
document.getElementById("jump").addEventListener("click", openPalette)
addEventListener("keydown", event => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault()
    if (!document.querySelector("dialog[open]")) openPalette()
    return
  }
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return
  if (event.key === "Escape") {
    if (isTyping()) inside(document).blur()
    else first(one => one.classList.contains("back"))?.click()
  } else if (isTyping()) return
  else if (event.key === "/") {
    const field = first(one => one.tagName === "INPUT" && one.type === "text")
    if (field) { event.preventDefault(); field.focus(); field.select() } else openPalette()
  } else if (event.key === "?") keys.showModal()
})
