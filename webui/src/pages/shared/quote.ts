/** A text as one word of a shell, whatever is in it: names come from others, and people paste what they copy. */
export function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
