"use strict"
// Tables of ours: the server sorts, and sends the first rows. All text is put in as text.
const number = new Intl.NumberFormat("en-US", {maximumFractionDigits: 3})
const whole = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0})
const bytes = value => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"]
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) { value /= 1024; unit++ }
  return `${value.toFixed(1)} ${units[unit]}`
}
const SHOW = {
  text: value => value,
  whole: value => whole.format(value),
  number: value => number.format(value),
  fine: value => value.toFixed(6),
  bytes,
  percent: value => `${(100 * value).toFixed(1)}%`,
  // Moments are told as tables of times want them, without a time zone.
  time: value => new Date(value).toISOString().slice(11, 19),
}
const textOf = (kind, value) => {
  if (value === null || value === undefined || value !== value) return "-"
  return SHOW[kind](value)
}

customElements.define("scaler-table", class extends HTMLElement {
  connectedCallback() {
    this.source = Bokeh.documents[0].get_model_by_id(this.dataset.source)
    this.columns = JSON.parse(this.dataset.columns)
    this.key = this.dataset.key
    this.at = 0
    this.build()
    const draw = () => this.later()
    const {source} = this
    this.signals = [source.properties.data.change, source.patching, source.streaming,
      source.properties.tags.change, source.properties.name.change]
    this.slot_ = draw
    for (const signal of this.signals) signal.connect(draw)
    this.draw()
  }
  disconnectedCallback() {
    for (const signal of this.signals ?? []) signal.disconnect(this.slot_)
  }
  later() {
    if (this.waits) return
    this.waits = true
    requestAnimationFrame(() => { this.waits = false; this.draw() })
  }
  build() {
    const make = (tag, role, parent) => {
      const one = document.createElement(tag)
      if (role) one.setAttribute("role", role)
      parent?.append(one)
      return one
    }
    this.make = make
    if (!this.key) {
      // Nothing in it may be focused on a phone, and who has no pointer is to scroll it all the same.
      this.tabIndex = 0
      this.setAttribute("role", "region")
      this.setAttribute("aria-label", this.dataset.label)
    }
    const table = make("table", "table")
    table.setAttribute("aria-label", this.dataset.label)
    const group = make("colgroup", "", table)
    for (const one of this.columns) make("col", "", group).style.width = `${one.width}px`
    const line = make("tr", "row", make("thead", "rowgroup", table))
    this.heads = this.columns.map(one => {
      const head = make("th", "columnheader", line)
      head.className = one.kind
      const button = make("button", "", head)
      button.type = "button"
      button.textContent = one.title
      button.addEventListener("click", () => this.sort(one.field))
      return head
    })
    this.body = make("tbody", "rowgroup", table)
    this.body.addEventListener("click", event => this.click(event))
    this.body.addEventListener("keydown", event => this.press(event))
    this.more = document.createElement("button")
    this.more.type = "button"
    this.more.className = "more"
    this.more.addEventListener("click", () => {
      const [field, down, limit, chosen] = this.source.tags
      this.source.tags = [field, down, limit + 100, chosen]
    })
    this.replaceChildren(table, this.more)
  }
  sort(field) {
    const [before, down, limit, chosen] = this.source.tags
    const kind = this.columns.find(one => one.field === field).kind
    this.source.tags = [field, before === field ? !down : kind !== "text", limit, chosen]
  }
  get lines() { return this.body.children }
  draw() {
    const {source, columns, key, body} = this
    const data = source.data
    const count = data[columns[0].field].length
    const keys = key ? data[key] : []
    const [field, down, limit, chosen] = source.tags, total = Number(source.name)
    const focused = this.getRootNode().activeElement?.closest?.("tr")
    const kept = focused?.dataset.key
    while (body.children.length > count) body.lastChild.remove()
    while (body.children.length < count) {
      const line = this.make("tr", "row", body)
      for (const one of columns) {
        const cell = this.make("td", "cell", line)
        cell.className = one.kind
        cell.classList.toggle("minor", one.is_minor)
        // On a phone: half a card has no room for a name.
        cell.classList.toggle("wide", one.width >= 180)
        cell.dataset.title = one.title
      }
    }
    if (kept !== undefined && keys[this.at] !== kept) this.at = Math.max(keys.indexOf(kept), 0)
    this.at = Math.min(this.at, Math.max(count - 1, 0))
    for (let row = 0; row < count; row++) {
      const line = body.children[row]
      if (key) {
        line.dataset.key = keys[row]
        line.tabIndex = row === this.at ? 0 : -1
        if (keys[row] === chosen) line.setAttribute("aria-current", "true")
        else line.removeAttribute("aria-current")
      }
      columns.forEach((one, place) => {
        const cell = line.children[place]
        const text = textOf(one.kind, data[one.field][row])
        const href = one.link ? data[one.link][row] : ""
        const look = one.look ? data[one.look][row] : ""
        const shown = JSON.stringify([text, href, look])
        if (cell.shown === shown) return
        cell.shown = shown
        cell.title = text
        const parts = [href ? document.createElement("a") : document.createElement("span")]
        parts[0].textContent = text
        if (href) {
          parts[0].href = href
          parts[0].tabIndex = key ? -1 : 0
        }
        if (look) {
          parts.unshift(document.createElement("i"))
          parts[0].style.background = look
        }
        cell.replaceChildren(...parts)
      })
    }
    if (kept !== undefined) body.children[this.at]?.focus({preventScroll: true})
    this.columns.forEach((one, place) => {
      const sort = one.field !== field ? "none" : down ? "descending" : "ascending"
      if (this.heads[place].getAttribute("aria-sort") !== sort)
        this.heads[place].setAttribute("aria-sort", sort)
    })
    this.more.hidden = total <= limit
    this.more.textContent = `Show more of ${whole.format(total)}`
  }
  click(event) {
    const line = event.target.closest("tr")
    if (!line || !this.key || event.target.closest("a")) return
    this.choose(line)
  }
  choose(line) {
    this.at = [...this.lines].indexOf(line)
    this.source.tags = [...this.source.tags.slice(0, 3), line.dataset.key]
  }
  press(event) {
    const line = event.target.closest("tr")
    if (!line || event.ctrlKey || event.altKey || event.metaKey) return
    const row = [...this.lines].indexOf(line), last = this.lines.length - 1
    const to = {ArrowDown: row + 1, ArrowUp: row - 1, Home: 0, End: last,
      PageDown: row + 10, PageUp: row - 10}[event.key]
    if (to !== undefined) {
      this.at = Math.min(Math.max(to, 0), last)
      this.later()
      this.lines[this.at].tabIndex = 0
      this.lines[this.at].focus()
    } else if (event.key === "Enter" || event.key === " ") {
      if (event.target.closest("a")) return
      this.choose(line)
    } else return
    event.preventDefault()
    event.stopPropagation()
  }
})
