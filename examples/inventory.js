// Groups an inventory, finds what to order again, and writes a file for the caller.
const fs = require("node:fs");

const stock = [
  { name: "bolt M6", shelf: "A", count: 340, minimum: 200, price: 0.08 },
  { name: "nut M6", shelf: "A", count: 120, minimum: 200, price: 0.05 },
  { name: "hinge", shelf: "B", count: 18, minimum: 10, price: 3.4 },
  { name: "handle", shelf: "B", count: 4, minimum: 10, price: 7.25 },
  { name: "lock", shelf: "C", count: 0, minimum: 5, price: 19.9 },
];

const shelves = new Map();
for (const item of stock) {
  const value = shelves.get(item.shelf) ?? 0;
  shelves.set(item.shelf, value + item.count * item.price);
}
for (const [shelf, value] of shelves) {
  console.log(`shelf ${shelf}: ${value.toFixed(2)}`);
}

const order = stock
  .filter((item) => item.count < item.minimum)
  .map(({ name, count, minimum }) => ({ name, count: minimum - count }))
  .sort((a, b) => a.name.localeCompare(b.name));
fs.writeFileSync("/output/order.json", JSON.stringify(order, null, 2));
console.log("to order:", order.map(({ name, count }) => `${count} × ${name}`).join(", "));
