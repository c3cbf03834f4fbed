// The position of playback: `cursor` events are shown. Live, the cursor follows new events; in a replay it follows a clock; otherwise it
// stays where the reader put it. The clock is the run's time, possibly slower, or one second per step. All events of a step have the
// time of its end. Its start and drafting time come from the step event, and draft tokens are spread evenly over the latter.

export class Player {
  constructor(now) {
    this.now = now;
    this.reset();
    this.speed = 1;
    this.rounds = false;
  }

  reset() {
    this.events = [];
    this.ends = [];   // for every finished step, the number of events up to its end
    this.times = [];  // when each event is due, in seconds: [on the run's clock, at one step per second]
    this.cursor = 0;
    this.target = 0;
    this.playing = false;
    this.following = true;
    this.done = false;
  }

  add(events) {
    for (const event of events) {
      this.events.push(event);
      this.times.push([event.time || 0, this.ends.length]);
      if (event.kind === "step") this.finish(event);
      // The end of the run belongs to the last step: there is nothing to step to after it.
      if (event.kind === "finished" && this.ends[this.ends.length - 1] === this.length - 1) this.ends[this.ends.length - 1] += 1;
    }
  }

  finish(step) {
    const begin = this.ends.length ? this.ends[this.ends.length - 1] : 1;
    const drafts = Math.max(1, step.num_draft || 0);
    const started = (step.time || 0) - (step.total_seconds || 0);
    const verdicts = Math.max(1, this.length - begin - (step.num_draft || 0));
    let drafted = 0, judged = 0;
    for (let n = begin; n < this.length; n += 1) {
      if (this.events[n].kind === "proposed") {
        drafted += 1;
        this.times[n] = [started + (step.draft_seconds || 0) * drafted / drafts, this.ends.length + 0.4 * drafted / drafts];
      } else {
        judged += 1;
        this.times[n] = [step.time || 0, this.ends.length + 0.5 + 0.3 * judged / verdicts];
      }
    }
    this.ends.push(this.length);
  }

  get length() {
    return this.events.length;
  }

  // The number of completely shown steps.
  round(cursor) {
    let low = 0, high = this.ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] <= cursor) low = middle + 1; else high = middle;
    }
    return low;
  }

  // When event number n is due, in seconds on the clock.
  due(n) {
    return this.times[n][this.rounds ? 1 : 0];
  }

  play() {
    this.target = this.cursor >= this.length && this.done ? Math.min(1, this.length) : this.cursor; // at the end: restart
    this.playing = true;
    this.following = false;
    this.last = this.now();
    this.clock = this.target < this.length ? this.due(this.target) : 0;
  }

  pause() {
    this.playing = false;
    this.following = false;
    this.target = this.cursor;
  }

  seek(n) {
    this.playing = false;
    this.following = false;
    this.target = Math.max(Math.min(1, this.length), Math.min(n, this.length));
    if (this.target === this.length && !this.done) this.following = true;
  }

  // To the end of the next or previous step, relative to the cursor's target, which it may not have reached yet.
  step(direction) {
    const from = this.following ? this.length : this.target;
    const round = this.round(from);
    if (direction > 0) return this.seek(round < this.ends.length ? this.ends[round] : this.length);
    const inside = round === 0 || this.ends[round - 1] < from;
    const before = inside ? round : round - 1;
    return this.seek(before === 0 ? 1 : this.ends[before - 1]);
  }

  end() {
    this.seek(this.length);
    this.following = !this.done;
  }

  change(speed, rounds) {
    this.speed = speed;
    if (this.rounds === rounds) return;
    this.rounds = rounds;
    if (this.playing && this.cursor < this.length) this.clock = this.due(this.cursor);
  }

  // The number of events to be shown now.
  aim() {
    if (this.following) return (this.target = this.length);
    if (this.playing) {
      const now = this.now();
      this.clock += (now - this.last) / 1000 * this.speed;
      this.last = now;
      let n = this.target;
      while (n < this.length && this.due(n) <= this.clock) n += 1;
      this.target = n;
      if (n >= this.length) {
        this.playing = false;
        this.following = !this.done;
      }
    }
    return this.target;
  }

  get busy() {
    return this.playing || this.aim() !== this.cursor;
  }
}
