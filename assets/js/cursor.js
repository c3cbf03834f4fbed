// Where in its run the stage stands, told to those parts of the page that follow: a summary (see summary.js).

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
