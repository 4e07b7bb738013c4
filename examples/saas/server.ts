/**
 * A small SaaS product on the gateway, offline and with demo data: npm run saas
 *
 * app.ts       the routes
 * login.ts     accounts, sessions, and the check of forms
 * gateway.ts   plans, the gateway, and the events of budgets
 * chat.ts      one client and one session of the gateway for each conversation
 * usage.ts     what the pages show, read from the gateway
 * stripe.ts    an event to Stripe for each billed request, here to a scripted one
 *
 * The pages are in pages.ts and usage-page.ts. Not in this example: a database, payments, and limits on attempts to sign in.
 */
import type { AddressInfo } from 'node:net'
import { app } from './app.ts'
import { addDemoData } from './demo-data.ts'
import { gateway } from './gateway.ts'
import { HOST } from './login.ts'

await addDemoData()
const server = app.listen(Number(process.env['PORT'] ?? 3000), HOST, (error) => {
  if (error !== undefined) throw error
  console.log(`http://localhost:${(server.address() as AddressInfo).port}`)
})

process.once('SIGTERM', () => {
  server.close()
  void gateway.close()
})
