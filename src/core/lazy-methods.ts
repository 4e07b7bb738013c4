type Methods<Api> = { readonly [name in keyof Api]: (...parameters: never[]) => Promise<unknown> }

/** Returns methods that load their code with the first call. */
export function lazyMethods<Api extends Methods<Api>>(
  load: () => Promise<Api>,
  methodNames: Readonly<Record<keyof Api, true>>,
): Api {
  const method =
    (name: keyof Api) =>
    async (...parameters: never[]): Promise<unknown> =>
      (await load())[name](...parameters)
  return Object.fromEntries(Object.keys(methodNames).map((name) => [name, method(name as keyof Api)])) as Api
}
