// An OpenID Connect server for tests: node server.mjs PORT KEYS_FILE [REDIRECT_URI]
// Its clients get access tokens for audience "kafka" by the client credentials grant. At REDIRECT_URI is
// the client "console", whose users log in with any name and password, and are asked for nothing else.
import { readFileSync } from 'node:fs';
import { Provider } from 'oidc-provider';

const [port, keysFile, redirectUri] = process.argv.slice(2);
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
const provider = new Provider(`http://127.0.0.1:${port}`, {
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
provider.listen(Number(port), '127.0.0.1', () => console.log(`listening on ${port}`));
