// An OpenID Connect server for tests: node server.mjs PORT KEYS_FILE
// Its clients get access tokens for audience "kafka" by the client credentials grant.
import { readFileSync } from 'node:fs';
import { Provider } from 'oidc-provider';

const [port, keysFile] = process.argv.slice(2);
const clients = ['alice', 'bob'].map((name) => ({
  client_id: name,
  client_secret: `${name}-secret`,
  grant_types: ['client_credentials'],
  redirect_uris: [],
  response_types: [],
  scope: 'produce consume',
}));
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients,
  jwks: JSON.parse(readFileSync(keysFile, 'utf8')),
  scopes: ['produce', 'consume'],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
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
