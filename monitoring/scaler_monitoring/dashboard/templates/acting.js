"use strict"
// Buttons of operators: the first click asks what would be met, and only the one in the dialog acts.
const deed = document.getElementById("deed"), deedSaid = document.getElementById("deed-said")
const deedClose = document.getElementById("deed-close"), deedDo = document.getElementById("deed-do")
// The deed that the dialog is about; what is answered of an earlier one is of no interest.
let wantedDeed = null
const ask = async (data, trial) => {
  const {action, kind, name} = data
  const body = JSON.stringify({action, kind, name, force: data.force === "true", trial})
  const headers = {"Content-Type": "application/json"}
  const answer = await fetch("act", {method: "POST", headers, body}).catch(() => null)
  const said = await answer?.json().catch(() => null)
  return said ?? {refused: answer?.status === 403
    ? "this browser has another link by now: open the one for operators again"
    : "the dashboard does not answer"}
}
const sentence = text => /[.?!]$/.test(text) ? text : `${text}.`
const endDeed = text => {
  deedSaid.textContent = sentence(text)
  deedClose.textContent = "Close"
  deedDo.hidden = true
  deedClose.focus()
}
const openDeed = async data => {
  wantedDeed = data
  document.getElementById("deed-title").textContent = data.title
  document.getElementById("deed-about").textContent = data.about
  deedSaid.textContent = "The scheduler is asked what that meets …"
  deedClose.textContent = "No"
  deedDo.textContent = data.yes
  deedDo.hidden = true
  deed.showModal()
  deedClose.focus()
  const {met, refused} = await ask(data, true)
  if (wantedDeed !== data) return
  if (refused !== undefined) return endDeed(`That cannot be done: ${refused}`)
  deedSaid.textContent = `That meets ${met}.`
  deedDo.hidden = false
}
deedDo.addEventListener("click", async () => {
  const data = wantedDeed
  deedDo.hidden = true
  deedClose.textContent = "Close"
  deedClose.focus()
  deedSaid.textContent = "The scheduler is told …"
  const {met, refused} = await ask(data, false)
  if (wantedDeed === data) endDeed(refused === undefined ? `Done: ${met}` : `Not done: ${refused}`)
})
deedClose.addEventListener("click", () => deed.close())
deed.addEventListener("close", () => { wantedDeed = null })
addEventListener("click", event => {
  const button = event.composedPath().find(one => one.classList?.contains("deed"))
  if (button) openDeed({...button.dataset})
})
