// Sends the stage's current summary (see summary.js) to the parts of the page that follow it.

const followers = [];
let last = null;

export function follow(follower) {
  followers.push(follower);
  if (last) follower(last);
}

export function tell(summary) {
  last = summary;
  for (const follower of followers) follower(summary);
}
