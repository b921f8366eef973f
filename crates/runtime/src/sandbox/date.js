// Runs before a source that contains `Date`: dates can be computed with, the current time is not available.
(Native => {
const now = () => { throw new TypeError('the current time is not available to conditions; pass a date in') };
const Given = function Date(...parts) { return new.target && parts.length ? Reflect.construct(Native, parts, new.target) : now() };
Given.UTC = Native.UTC;
Given.parse = Native.parse;
Given.now = now;
Given.prototype = Native.prototype;
Given.prototype.constructor = globalThis.Date = Given;
})(Date)
