// Adds the key to every request of the suite of conformance, which has no option for one.

import { Agent, setGlobalDispatcher } from "undici";

const withKey = (dispatch) => (options, handler) => {
  const headers = options.headers instanceof Array ? [...options.headers] : { ...options.headers };
  if (headers instanceof Array) {
    headers.push("authorization", `Bearer ${process.env.KEY}`);
  } else {
    headers.authorization = `Bearer ${process.env.KEY}`;
  }
  return dispatch({ ...options, headers }, handler);
};
setGlobalDispatcher(new Agent().compose(withKey));
