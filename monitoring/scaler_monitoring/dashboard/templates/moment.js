"use strict"
// The slider over a recording, or over what was before: all tabs that look at a moment show the same one.
// The server says which, and how fast it goes on.
const followMoment = moment => {
  const at = document.getElementById("at"), play = document.getElementById("play")
  const speed = document.getElementById("speed"), said = document.getElementById("at-said")
  const now = document.getElementById("now")
  const two = number => String(number).padStart(2, "0")
  const clock = text => {
    if (HAS_DATES) return new Date(Number(text) * 1000).toLocaleString()
    const all = Math.floor(Number(text)), hours = Math.floor(all / 3600)
    return `${hours ? `${hours}:` : ""}${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`
  }
  // What the server said before it heard what is wanted here is old.
  let wanted = 0, pace = 0, isNow = false
  const draw = () => {
    play.textContent = pace ? "Pause" : "Play"
    if (pace) speed.value = pace
    said.textContent = isNow ? "now" : HAS_DATES ? clock(at.value) : `${clock(at.value)} of ${clock(at.max)}`
    at.setAttribute("aria-valuetext", said.textContent)
    play.disabled = isNow
    if (now) now.disabled = isNow
  }
  const show = () => {
    const [where, faster, heard, first, last] = moment.tags
    at.min = first
    at.max = last
    if (heard !== wanted) return
    isNow = where === "now"
    at.value = isNow ? last : where
    pace = isNow ? 0 : faster
    draw()
  }
  const tell = (where, faster) => {
    pace = faster
    isNow = where === "now"
    draw()
    moment.tags = [where, faster, ++wanted, Number(at.min), Number(at.max)]
  }
  const go = () => tell(now && Number(at.value) >= Number(at.max) ? "now" : Number(at.value), 0)
  at.addEventListener("input", go)
  // The browser's own steps are those of a mouse: tenths of seconds.
  at.addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey) return
    const page = Math.max((Number(at.max) - Number(at.min)) / 10, 1)
    const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page,
      Home: -Infinity, End: Infinity}[event.key]
    if (step === undefined) return
    event.preventDefault()
    at.value = Math.min(Math.max(Number(at.value) + step, Number(at.min)), Number(at.max))
    go()
  })
  play.addEventListener("click", () => tell(null, pace ? 0 : Number(speed.value)))
  speed.addEventListener("change", () => { if (pace) tell(null, Number(speed.value)) })
  now?.addEventListener("click", () => tell("now", 0))
  moment.properties.tags.change.connect(show)
  show()
  // Before this, nobody would hear what is wanted.
  document.getElementById("moment").disabled = false
}
