// An OpenID Connect server for tests: node server.mjs URL KEYS_FILE [REDIRECT_URI [CERTIFICATE KEY]]
// Its clients get access tokens for audience "kafka" by the client credentials grant. At REDIRECT_URI is
// the client "console", whose users log in with any name and password, and are asked for nothing else.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { Provider } from 'oidc-provider';

const [url, keysFile, redirectUri, certificate, key] = process.argv.slice(2);
const clients = ['alice', 'bob'].map((name) => ({
  client_id: name,
  client_secret: `${name}-secret`,
  grant_types: ['client_credentials'],
  redirect_uris: [],
  response_types: [],
  scope: 'produce consume',
}));
if (redirectUri) {
  clients.push({ client_id: 'console', client_secret: 'console-secret', redirect_uris: [redirectUri] });
}
const provider = new Provider(url, {
  clients,
  jwks: JSON.parse(readFileSync(keysFile, 'utf8')),
  scopes: ['openid', 'produce', 'consume'],
  pkce: { required: () => true },
  loadExistingGrant: async ({ oidc }) => {
    const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
    grant.addOIDCScope('openid');
    grant.addResourceScope('urn:kafka', 'produce consume');
    await grant.save();
    return grant;
  },
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: Boolean(redirectUri) },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => 'urn:kafka',
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({
        scope: 'produce consume',
        audience: 'kafka',
        accessTokenTTL: 300,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
});
const server = certificate
  ? createTlsServer({ cert: readFileSync(certificate), key: readFileSync(key) }, provider.callback())
  : createServer(provider.callback());
const { hostname, port } = new URL(url);
server.listen(Number(port), hostname, () => console.log(`listening at ${url}`));
