/** Loaded with `--import` into third-party servers, so that they answer queries of the benchmark. */
import { responseQueries } from './agent.ts'

responseQueries()
