"use strict"
// The slider over a recording. All tabs show one moment: the server says which, and how fast it goes on.
const followMoment = moment => {
  const at = document.getElementById("at"), play = document.getElementById("play")
  const speed = document.getElementById("speed"), said = document.getElementById("at-said")
  const two = number => String(number).padStart(2, "0")
  const clock = text => {
    const all = Math.floor(Number(text)), hours = Math.floor(all / 3600)
    return `${hours ? `${hours}:` : ""}${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`
  }
  const draw = () => {
    play.textContent = pace ? "Pause" : "Play"
    if (pace) speed.value = pace
    said.textContent = `${clock(at.value)} of ${clock(at.max)}`
    at.setAttribute("aria-valuetext", said.textContent)
  }
  // What the server said before it heard what is wanted here is old.
  let wanted = 0, pace = 0
  const show = () => {
    const [where, faster, heard] = moment.tags
    if (heard !== wanted) return
    at.value = where
    pace = faster
    draw()
  }
  const tell = (where, faster) => {
    pace = faster
    draw()
    moment.tags = [where, faster, ++wanted]
  }
  const go = () => tell(Number(at.value), 0)
  at.addEventListener("input", go)
  // The browser's own steps are those of a mouse: tenths of seconds.
  at.addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey) return
    const page = Math.max(Number(at.max) / 10, 1)
    const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page,
      Home: -Infinity, End: Infinity}[event.key]
    if (step === undefined) return
    event.preventDefault()
    at.value = Math.min(Math.max(Number(at.value) + step, 0), Number(at.max))
    go()
  })
  play.addEventListener("click", () => tell(null, pace ? 0 : Number(speed.value)))
  speed.addEventListener("change", () => { if (pace) tell(null, Number(speed.value)) })
  moment.properties.tags.change.connect(show)
  show()
}
