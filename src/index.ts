/**
 * An LLM gateway that runs inside your own server.
 *
 * ```ts
 * import { createGateway, memoryStore, openai } from 'sluice'
 *
 * const gateway = createGateway({ providers: [openai({ apiKey })], store: memoryStore(), margin: 1.5 })
 * const key = await gateway.keys.create({ name: 'first app', budgetLimitCents: 1000 })
 * const response = await gateway.fetch(request)
 * ```
 *
 * @module
 */
export { type BoundGateway, createGateway, type Gateway } from './gateway.ts'
export type { CallerContext, Payer } from './governance/caller.ts'
export type {
  BudgetOptions,
  CustomerPermissions,
  CustomerPlan,
  CustomersOptions,
  DegradeOptions,
  LimitWindowOptions,
  RateLimitOptions,
  SessionLimitOptions,
} from './plugins/customers/options.ts'
export type {
  ConfiguredCustomer,
  CustomerChange,
  CustomerPage,
  CustomerQuery,
  CustomerRecord,
  Customers,
  CustomerSettings,
  DeleteCustomerOptions,
  DeletedCustomer,
  NewCustomer,
  NewRaise,
} from './plugins/customers/customer-api.ts'
export type {
  BilledUsage,
  BudgetSummary,
  LimitSummary,
  PeriodSummary,
  RateLimitSummary,
  UsageAmounts,
  UsageGroup,
  UsageQuery,
  UsageReport,
  UsageReporting,
  UsageReportRow,
  UsageSummary,
  UsageSummaryQuery,
} from './plugins/usage/usage-api.ts'
export type {
  DifferenceKind,
  OutboxAmounts,
  ReconciledDay,
  ReconcileQuery,
  Reconciliation,
  ReconciliationDifference,
  Reconciling,
  VendorComparison,
  VendorUsageRow,
} from './plugins/reconcile/reconcile-api.ts'
export type {
  BillingOptions,
  CacheOptions,
  GatewayOptions,
  GovernanceConfiguration,
  MarginRequest,
  RuntimeOptions,
} from './options.ts'
export type { Limits } from './kernel/limits.ts'
export type { Policies } from './kernel/policies.ts'
export type { AdminOptions } from './kernel/admin-access.ts'
export type { CacheMetrics, MetricsReports } from './plugins/metrics/prometheus.ts'
export type { MetricsSummary, ShadowTier, ShadowTierSummary } from './plugins/metrics/metrics.ts'
export type { CircuitBreakerOptions } from './providers/circuit-breaker.ts'
export type { BodyLimits, HeaderRecord, HttpHandler, HttpHandling, HttpRequest, ResponseSink } from './core/http.ts'
export type { MaybePromise } from './core/async.ts'
export type { Json, JsonObject } from './core/json.ts'
export type { FetchHandling, Served } from './http/served.ts'
export type { FetchHandler } from './http/web-handler.ts'
export type {
  PassthroughEndpoint,
  PassthroughName,
  PassthroughOptions,
  PassthroughRequest,
} from './plugins/passthrough/parse-passthrough.ts'
export type { BatchOptions } from './plugins/batches/batch-worker.ts'
export type { SavingsOptions } from './plugins/savings/options.ts'
export type { SessionTotals } from './plugins/savings/explain-session.ts'
export type {
  CustomPlan,
  ExplainedPlan,
  ExplainInput,
  ExplainSavingsOptions,
  LoggedBody,
  LoggedRequest,
  SavingsExplanation,
} from './plugins/savings/explain-plans.ts'
export type { StreamsOptions } from './plugins/recordings/options.ts'

export {
  anthropic,
  openai,
  openaiCompatible,
  type AnthropicOptions,
  type OpenaiCompatibleOptions,
  type OpenaiOptions,
} from './providers/main-providers.ts'
export type { CatalogAlias, CatalogOptions } from './providers/catalog.ts'
export type { ApiKey, ModelEntry } from './providers/provider-options.ts'
export type { KnownModel, PriceList } from './providers/vendor.ts'
export type {
  EmbedCall,
  EmbeddingResult,
  EmbeddingRequest,
  PassthroughResponse,
  PassthroughCall,
  Provider,
  ProviderCall,
  Timeouts,
  Transport,
  UpstreamCaller,
} from './core/ports.ts'
export type { Model } from './core/ports.ts'
export type { LongPrice, Price, ServiceTiers, TierPrice } from './core/money.ts'

export type {
  BudgetChange,
  BudgetPage,
  BudgetRecord,
  ConfiguredBudget,
  ConfiguredKey,
  ConfiguredRateLimit,
  CreatedKey,
  DeletedRecord,
  KeyConfiguration,
  KeyChange,
  KeyPage,
  KeyProvider,
  KeyProviderRecord,
  KeyRecord,
  KeySettings,
  ListedKey,
  NewBudget,
  NewKey,
  NewRateLimit,
  RateLimitChange,
  RateLimitPage,
  RateLimitRecord,
} from './plugins/admin/admin-api.ts'
export type { PageOptions } from './governance/page-query.ts'
export type { KeyLimits, KeyRateLimit, KeyUsage, ModelUsage, UsageTotals } from './plugins/admin/usage-report.ts'
export type { Budgets, Keys, RateLimits, RecordMethods } from './plugins/admin/admin-records.ts'
export type { DurationCode } from './core/store.ts'
export type { KeyFormat, PlanName } from './governance/virtual-key.ts'
export type { WireForm, WireName } from './core/field-names.ts'

export { readBill, type ResponseBill } from './billing/bill.ts'
export type {
  EventLogRecord,
  LogLevel,
  LogLine,
  LogRecord,
  RequestLogRecord,
} from './plugins/request-log/request-log.ts'
export type { LogEventFields } from './core/failure-log.ts'
export type { LoggedCause } from './core/logged-cause.ts'
export type { AuditPage, AuditQuery, AuditRecord } from './plugins/audit/audit.ts'
export type { FinalOutcome, TierOutcome } from './kernel/finished-request.ts'

export { memoryStore, type MemoryBounds, type MemoryStoreOptions } from './stores/memory.ts'
export type { Store } from './core/store.ts'

export {
  smallModelVerifier,
  type AskedQuestion,
  type SemanticCacheOptions,
  type Verdict,
  type VerifierCall,
  type VerifierModel,
  type VerifyHit,
} from './plugins/cache/cache-options.ts'
export { openaiEmbedder, type OpenaiEmbedderOptions } from './providers/main-providers.ts'
export type { ResponseStore, CachedResponse, Embedder, Neighbor, VectorIndex } from './core/cache.ts'

export {
  createSlot,
  type AttemptResult,
  type BudgetEvent,
  type ContentPart,
  type DeliveryOptions,
  type DeliveryResult,
  type EndedExchange,
  type FailedDelivery,
  type Outbox,
  type OutboxRecord,
  type Plugin,
  type PluginAttempt,
  type PluginBill,
  type PluginEndpoint,
  type PluginExchange,
  type PluginFailure,
  type PluginOutcome,
  type PluginPrompt,
  type PluginReply,
  type PromptChange,
  type ResponseEnding,
  type ResponseTransformer,
  type SettledRequest,
  type Slot,
  type TransformedPart,
} from './kernel/plugin.ts'
export type { FinishReason, StreamPart } from './core/completion.ts'
export type { NanoUsd, Usage } from './core/money.ts'
export type { Message, Part, Settings, Tool } from './core/prompt.ts'
export {
  GatewayError,
  type FailureDetails,
  type FailureKind,
  type RetryAdvice,
  type UpstreamErrorDetails,
} from './core/errors.ts'
